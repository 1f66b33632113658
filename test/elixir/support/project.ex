defmodule InetRdma.Test.Project do
  @moduledoc """
  The projects of `test/projects`, which depend on inet_rdma: compiled as a user does, then run as two nodes.
  """

  import ExUnit.Assertions, only: [assert: 1]

  alias InetRdma.Test.Os

  @carrier System.get_env("TEST_CARRIER", "inet_rdma")

  # What the second node does: joins the first, uses the application there, tells what carried it, stops it.
  @visit """
  [first, cookie] = System.argv()
  Node.set_cookie(String.to_atom(cookie))
  first = String.to_atom(first)
  IO.puts("ping " <> to_string(Node.ping(first)))
  IO.puts("fetched " <> inspect(MixCluster.fetch(first, :greeting)))
  IO.puts("carried over RDMA " <> inspect(for info <- InetRdma.info(), info.node == first, do: info.fabric))
  :ok = :rpc.call(first, :init, :stop, [])
  """

  @doc """
  Compiles the Mix project below `root`, the path of its dependency on inet_rdma, and forms a cluster of two nodes.
  Gives the output of the compilation.
  """
  def mix_cluster!(root, env \\ []) do
    project = Path.join(root, "test/projects/mix_cluster")
    build = Os.scratch_dir()
    env = [{"MIX_ENV", "dev"}, {"MIX_BUILD_PATH", build} | env]
    compiled = Os.run!("mix", ["compile", "--warnings-as-errors"], cd: project, env: env)

    # The carrier is needed before Mix has set any path, thus -pa. Eager: a visit is too short to earn a move.
    carrier = "-pa #{build}/lib/inet_rdma/ebin -proto_dist #{@carrier} -inet_rdma move eager"

    mix = fn name, cookie, args ->
      ["--erl", carrier, "--sname", name, "--cookie", cookie, "-S", "mix", "run" | args]
    end

    first_name = Os.node_name("mix_first")
    greet = ~s(MixCluster.put(:greeting, "hello"\); IO.puts("ready"\))
    first = Os.start!("elixir", mix.(first_name, "mix_cookie", ["--no-halt", "-e", greet]), cd: project, env: env)
    Os.await_line!(first, ~r/^ready$/)

    visit = Path.join(build, "visit.exs")
    File.write!(visit, @visit)
    args = mix.(Os.node_name("mix_second"), "mix_cookie", [visit, first_name, "mix_cookie"])
    output = Os.run!("elixir", args, cd: project, env: env)

    assert output =~ "ping pong"
    assert output =~ ~s(fetched "hello")
    assert output =~ "carried over RDMA [:shm]"
    assert {0, _lines} = Os.await_exit!(first)
    compiled
  end

  @doc """
  Compiles the rebar3 project with a checkout of inet_rdma from `root`, and forms a cluster of two nodes. Gives the
  output of the compilation.
  """
  def rebar_cluster!(root, env \\ []) do
    project = Path.join(Os.scratch_dir(), "rebar_cluster")
    File.cp_r!(Path.join(Os.root(), "test/projects/rebar_cluster"), project)
    File.mkdir_p!(Path.join(project, "_checkouts"))
    File.ln_s!(root, Path.join(project, "_checkouts/inet_rdma"))
    compiled = Os.run!("rebar3", ["compile"], cd: project, env: env)

    paths = Path.wildcard(Path.join(project, "_build/default/{lib,checkouts}/*/ebin"))
    assert Enum.any?(paths, &String.ends_with?(&1, "inet_rdma/ebin"))

    erl = fn name, eval ->
      ["-pa" | paths] ++ Os.node_args(name, @carrier, "rebar_cookie") ++ ["-eval", eval]
    end

    first_name = Os.node_name("rebar_first")
    first = Os.start!("erl", erl.(first_name, "io:format(\"ready~n\")."), cd: project)
    Os.await_line!(first, ~r/^ready$/)

    visit = """
    First = '#{first_name}',
    io:format("ping ~s~n", [net_adm:ping(First)]),
    io:format("echo ~p~n", [rebar_cluster:echo(First, {hello, [1, 2, 3]})]),
    io:format("sum ~p~n", [erpc:call(First, rebar_cluster, sum, [[1, 2, 3]])]),
    io:format("carried over RDMA ~p~n", [[F || \#{node := N, fabric := F} <- inet_rdma:info(), N =:= First]]),
    io:format("tools ~p~n", [inet_rdma:load_tools()]),
    ok = rpc:call(First, init, stop, []),
    halt().
    """

    output = Os.run!("erl", erl.(Os.node_name("rebar_second"), visit), cd: project)
    assert output =~ "ping pong"
    assert output =~ "echo {hello,[1,2,3]}"
    assert output =~ "sum 6"
    assert output =~ "carried over RDMA [shm]"
    assert output =~ "tools ok"
    assert {0, _lines} = Os.await_exit!(first)
    compiled
  end
end
