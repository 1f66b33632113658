defmodule InetRdma.AppFileTest do
  use ExUnit.Case, async: true

  alias InetRdma.Test.Os

  @tag timeout: 900_000
  test "Mix and rebar3 describe the application alike, but for the Elixir modules" do
    build = Os.scratch_dir()
    Os.run!("rebar3", ["compile"], cd: Os.root(), env: [{"REBAR_BASE_DIR", build}])

    from_mix = description(Application.app_dir(:inet_rdma))
    from_rebar = description(Path.join(build, "default/lib/inet_rdma"))

    # Not :elixir: an Erlang system that has no Elixir loads this file too.
    assert from_mix[:applications] == [:kernel, :stdlib]
    assert Map.delete(from_mix, :modules) == Map.delete(from_rebar, :modules)
    assert tools(Application.app_dir(:inet_rdma)) == tools(Path.join(build, "default/lib/inet_rdma"))

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

  test "the tools are an application that depends on this one, and no module is in both" do
    dir = Application.app_dir(:inet_rdma)
    tools = tools(dir)
    assert :inet_rdma in tools[:applications]
    assert tools[:vsn] == description(dir)[:vsn]
    assert :inet_rdma_doctor in tools[:modules]
    assert tools[:modules] -- description(dir)[:modules] == tools[:modules]
    assert :ok == :inet_rdma.load_tools()
    for module <- tools[:modules], do: assert({:module, module} == Code.ensure_loaded(module))
  end

  defp tools(dir), do: description(Path.join(dir, "inet_rdma_tools"), :inet_rdma_tools)

  defp description(dir, name \\ :inet_rdma) do
    assert {:ok, [{:application, ^name, keys}]} = :file.consult(Path.join(dir, "ebin/#{name}.app"))
    Map.new(keys)
  end
end
