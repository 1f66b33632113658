defmodule InetRdma.ReleaseTest do
  use ExUnit.Case, async: true

  alias InetRdma.Test.Os

  @project Path.join(Os.root(), "test/projects/mix_cluster")

  @tag timeout: 900_000
  test "a release in embedded mode clusters, and answers its remote shell, rpc and stop" do
    dir = Os.scratch_dir()
    release = Path.join(dir, "release")
    build_env = [{"MIX_ENV", "prod"}, {"MIX_BUILD_PATH", Path.join(dir, "build")}]
    Os.run!("mix", ["release", "--path", release], cd: @project, env: build_env)

    # Without debug information, as DEPLOY.md says.
    assert [library] = Path.wildcard(Path.join(release, "lib/inet_rdma-*/priv/inet_rdma_nif.so"))
    assert File.stat!(library).size < 5_000_000

    script = Path.join(release, "bin/mix_cluster")
    [first, second] = for word <- ~w(release_first release_second), do: Os.node_name(word)
    # Eager: a few calls do not earn a move.
    eager = {"ERL_AFLAGS", "-inet_rdma move eager"}
    env = &[eager, {"RELEASE_NODE", &1}, {"RELEASE_TMP", Path.join(dir, &1)} | test_carrier(dir)]
    rpc = fn node, code -> Os.run!(script, ["rpc", code], env: env.(node)) end

    ports =
      for node <- [first, second] do
        port = Os.start!(script, ["start"], env: env.(node))
        await_rpc!(script, env.(node))
        port
      end

    # It is what we think it is: embedded, and the peer is reached over our carrier.
    assert rpc.(first, "IO.inspect :init.get_argument(:mode)") =~ "embedded"
    assert rpc.(first, "IO.inspect Node.ping(:\"#{second}\")") =~ ":pong"
    # Nor has it the tools.
    assert rpc.(first, "IO.inspect :inet_rdma.load_tools()") =~ "{:error, :not_found}"
    assert rpc.(second, "MixCluster.put(:greeting, \"hello\")") == ""
    assert rpc.(first, "IO.inspect MixCluster.fetch(:\"#{second}\", :greeting)") =~ ~s("hello")
    carried = "IO.inspect(for i <- InetRdma.info(), i.node == :\"#{second}\", do: i.fabric)"
    assert rpc.(first, carried) =~ "[:shm]"

    remote_shell(script, env.(first), first)

    for {port, node} <- Enum.zip(ports, [first, second]) do
      Os.run!(script, ["stop"], env: env.(node))
      assert {0, _lines} = Os.await_exit!(port)
    end
  end

  @tag timeout: 900_000
  test "a release with the step for the tools has them" do
    dir = Os.scratch_dir()
    build_env = [{"MIX_ENV", "prod"}, {"MIX_BUILD_PATH", Path.join(dir, "build")}]
    Os.run!("mix", ["release", "with_tools", "--path", Path.join(dir, "release")], cd: @project, env: build_env)

    script = Path.join(dir, "release/bin/with_tools")
    env = [{"RELEASE_NODE", Os.node_name("release_tools")}, {"RELEASE_TMP", Path.join(dir, "tmp")} | test_carrier(dir)]
    port = Os.start!(script, ["start"], env: env)
    await_rpc!(script, env)
    said = Os.run!(script, ["rpc", "IO.inspect {:inet_rdma.load_tools(), :inet_rdma_doctor.report().starts}"], env: env)
    assert said =~ "{:ok, true}"
    Os.run!(script, ["stop"], env: env)
    assert {0, _lines} = Os.await_exit!(port)
  end

  # In a terminal of its own, which script(1) gives it, as without one iex does not go remote.
  defp remote_shell(script, env, node) do
    shell = Os.start!("script", ["-qec", "#{script} remote", "/dev/null"], env: [{"TERM", "vt100"} | env])
    Os.await_line!(shell, ~r/Interactive Elixir/)
    Port.command(shell, ~S[IO.puts("answer #{6 * 7} from #{node()}")] <> "\n")
    Os.await_line!(shell, ~r/answer 42 from #{node}/)
    control_backslash = <<28>>
    Port.command(shell, control_backslash)
    Os.await_exit!(shell)
  end

  # A release says nothing when it is up, so ask until it answers.
  defp await_rpc!(script, env, left \\ 50) do
    case System.cmd(script, ["rpc", "IO.puts(:up)"], env: env, stderr_to_stdout: true) do
      {"up\n", 0} -> :ok
      {output, status} when left == 0 -> flunk("no answer, rpc ended with #{status}:\n#{output}")
      _not_yet -> await_rpc!(script, env, left - 1)
    end
  end

  defp test_carrier(dir) do
    case System.get_env("TEST_CARRIER") do
      nil ->
        []

      carrier ->
        args = Path.join(dir, "vm.args")
        File.write!(args, "-proto_dist #{carrier}\n")
        [{"RELEASE_VM_ARGS", args}, {"RELEASE_REMOTE_VM_ARGS", args}]
    end
  end
end
