defmodule InetRdma.MixProjectTest do
  use ExUnit.Case, async: true

  alias InetRdma.Test.Os

  @project Path.join(Os.root(), "test/projects/mix_cluster")
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

  @tag timeout: 300_000
  test "a Mix project that names us as a path dependency forms a cluster" do
    build = Os.scratch_dir()
    env = [{"MIX_ENV", "dev"}, {"MIX_BUILD_PATH", build}]
    Os.run!("mix", ["compile", "--warnings-as-errors"], cd: @project, env: env)

    # The carrier is needed before Mix has set any path, thus -pa.
    carrier = "-pa #{build}/lib/inet_rdma/ebin -proto_dist #{@carrier}"

    mix = fn name, cookie, args ->
      ["--erl", carrier, "--sname", name, "--cookie", cookie, "-S", "mix", "run" | args]
    end

    first_name = Os.node_name("mix_first")
    greet = ~s(MixCluster.put(:greeting, "hello"\); IO.puts("ready"\))
    first = Os.start!("elixir", mix.(first_name, "mix_cookie", ["--no-halt", "-e", greet]), cd: @project, env: env)
    Os.await_line!(first, ~r/^ready$/)

    visit = Path.join(build, "visit.exs")
    File.write!(visit, @visit)
    args = mix.(Os.node_name("mix_second"), "mix_cookie", [visit, first_name, "mix_cookie"])
    output = Os.run!("elixir", args, cd: @project, env: env)

    assert output =~ "ping pong"
    assert output =~ ~s(fetched "hello")
    assert output =~ "carried over RDMA [:shm]"
    assert {0, _lines} = Os.await_exit!(first)
  end
end
