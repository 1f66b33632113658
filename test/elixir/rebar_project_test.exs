defmodule InetRdma.RebarProjectTest do
  use ExUnit.Case, async: true

  alias InetRdma.Test.Os

  @project Path.join(Os.root(), "test/projects/rebar_cluster")
  @carrier System.get_env("TEST_CARRIER", "inet_rdma")

  @tag timeout: 300_000
  test "a rebar3 project with a checkout of us forms a cluster" do
    project = Path.join(Os.scratch_dir(), "rebar_cluster")
    File.cp_r!(@project, project)
    File.mkdir_p!(Path.join(project, "_checkouts"))
    File.ln_s!(Os.root(), Path.join(project, "_checkouts/inet_rdma"))
    Os.run!("rebar3", ["compile"], cd: project)

    paths = Path.wildcard(Path.join(project, "_build/default/{lib,checkouts}/*/ebin"))
    assert Enum.any?(paths, &String.ends_with?(&1, "inet_rdma/ebin"))

    erl = fn name, eval ->
      ["-noinput", "-pa" | paths] ++
        ["-proto_dist", @carrier, "-sname", name, "-setcookie", "rebar_cookie", "-eval", eval]
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
    ok = rpc:call(First, init, stop, []),
    halt().
    """

    output = Os.run!("erl", erl.(Os.node_name("rebar_second"), visit), cd: project)
    assert output =~ "ping pong"
    assert output =~ "echo {hello,[1,2,3]}"
    assert output =~ "sum 6"
    assert output =~ "carried over RDMA [shm]"
    assert {0, _lines} = Os.await_exit!(first)
  end
end
