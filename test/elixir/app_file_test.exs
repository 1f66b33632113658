defmodule InetRdma.AppFileTest do
  use ExUnit.Case, async: true

  alias InetRdma.Test.Os

  @tag timeout: 300_000
  test "Mix and rebar3 describe the application alike, but for the Elixir modules" do
    build = Os.scratch_dir()
    Os.run!("rebar3", ["compile"], cd: Os.root(), env: [{"REBAR_BASE_DIR", build}])

    from_mix = description(Application.app_dir(:inet_rdma))
    from_rebar = description(Path.join(build, "default/lib/inet_rdma"))

    # Not :elixir: an Erlang system that has no Elixir loads this file too.
    assert from_mix[:applications] == [:kernel, :stdlib]
    assert Map.delete(from_mix, :modules) == Map.delete(from_rebar, :modules)

    elixir? = &String.starts_with?(Atom.to_string(&1), "Elixir.")
    {elixir, erlang} = Enum.split_with(from_mix[:modules], elixir?)
    assert Enum.sort(erlang) == Enum.sort(from_rebar[:modules])
    assert InetRdma in elixir
  end

  test "the description that Mix writes lists the modules that Mix compiled" do
    dir = Application.app_dir(:inet_rdma)

    beams =
      for beam <- Path.wildcard(Path.join(dir, "ebin/*.beam")), do: beam |> Path.basename(".beam") |> String.to_atom()

    assert Enum.sort(description(dir)[:modules]) == Enum.sort(beams)
  end

  defp description(dir) do
    assert {:ok, [{:application, :inet_rdma, keys}]} = :file.consult(Path.join(dir, "ebin/inet_rdma.app"))
    Map.new(keys)
  end
end
