defmodule InetRdma.ProvidersDocTest do
  use ExUnit.Case, async: true

  @compile {:no_warn_undefined, :inet_rdma_providers}

  alias InetRdma.Test.Os

  @keys ~w(rc rdma_cm transport write_with_imm inline inline_sent max_sge max_qp_wr max_cqe max_rd_atomic windows)a ++
          ~w(modify_qp fatal gid_pkey)a

  setup_all do
    :ok = :inet_rdma.load_tools()
  end

  test "docs/HARDWARE.md has the rows of inet_rdma_providers:markdown/0" do
    {profiles, facts} = :inet_rdma_providers.markdown()
    assert documented(4) == profiles
    assert documented(5) == facts
  end

  test "docs/HARDWARE.md names the sources with their versions" do
    page = page() |> String.split() |> Enum.join(" ")
    for {_source, version} <- :inet_rdma_providers.sources(), do: assert(page =~ subject(version))
  end

  test "each profile has every fact once, and a file for each that is not unknown" do
    for %{provider: provider, facts: facts} <- :inet_rdma_providers.list() do
      keys = for {key, _grade, _says, _files} <- facts, do: key
      assert keys -- [:other] == @keys, "#{provider}"

      for {key, grade, says, files} <- facts do
        assert grade in [:confirmed, :inferred, :unknown]
        assert grade == :unknown == (files == [] and says == []), "#{provider}: #{key}"
      end
    end
  end

  test "no two profiles are of one driver" do
    drivers = Enum.flat_map(:inet_rdma_providers.list(), & &1.drivers)
    assert drivers == Enum.uniq(drivers)
  end

  test "a device whose driver is not known has the profile of its name" do
    assert %{provider: :mana} = :inet_rdma_providers.of_device(:undefined, "mana_0")
    assert %{provider: :irdma} = :inet_rdma_providers.of_device("ice", "rocep1s0")
    assert :undefined == :inet_rdma_providers.of_device(:undefined, "manae_0")
    assert :undefined == :inet_rdma_providers.of_device("pigeon", "mlx5_0")
  end

  test "docs/HARDWARE.md says of each emulated device over which device it ran" do
    emulations = :inet_rdma_providers.emulations()

    rows =
      for row <- documented(9) do
        ["| " <> name, over | _cells] = String.split(row, " | ")
        {String.trim(name, "`"), over}
      end

    assert rows == for(%{name: name, over: over} <- emulations, do: {to_string(name), to_string(over)})
    providers = for %{provider: provider} <- :inet_rdma_providers.list(), provider not in [:rxe, :siw], do: provider

    assert Enum.sort(providers) ==
             emulations |> Enum.map(& &1.provider) |> Enum.uniq() |> List.delete(:none) |> Enum.sort()
  end

  # The only tables of these widths whose rows begin with code.
  defp documented(width) do
    for "| `" <> _rest = line <- String.split(page(), "\n"), length(String.split(line, " | ")) == width, do: line
  end

  defp page, do: File.read!(Path.join(Os.root(), "docs/HARDWARE.md"))

  # "commit HASH" is the hash; "release NUMBER, ..." the number.
  defp subject(version) do
    [_kind, subject | _] = version |> to_string() |> String.split([" ", ","], trim: true)
    subject
  end
end
