defmodule InetRdma.NoLibraryTest do
  # Where no native library can be had: what a build says, and what nodes do then.
  use ExUnit.Case, async: true

  alias InetRdma.Test.{Archive, Os}

  @warning "warning: there is no native library: nodes start, and all their links stay on TCP"

  setup do
    dir = Os.scratch_dir()
    bin = Path.join(dir, "bin")
    %{dir: dir, bin: bin, tree: Archive.tree!(Path.join(dir, "tree")), env: Archive.no_toolchain(bin)}
  end

  @tag timeout: 900_000
  test "on macOS a Mix project compiles with one warning; its nodes have links of inet_tcp, and say why", context do
    %{bin: bin, dir: dir, tree: tree, env: env} = context
    Archive.program(bin, "uname", "echo Darwin")
    project = Path.join(tree, "test/projects/mix_cluster")
    build = Path.join(dir, "build")
    env = env ++ [{"MIX_ENV", "dev"}, {"MIX_BUILD_PATH", build}]

    said = Os.run!("mix", ["compile", "--warnings-as-errors"], cd: project, env: env)
    assert [_before, _after] = String.split(said, "warning:")
    assert said =~ "inet_rdma: #{@warning}\ninet_rdma: it is for Linux, and this system is Darwin"
    refute said =~ "took the native library"

    {said, 1} = System.cmd("mix", ["inet_rdma.doctor"], cd: project, env: env, stderr_to_stdout: true)
    assert said =~ ~r/problem +native +the native library is not loaded/
    assert said =~ "No link of this node can leave TCP."

    links_stay_on_tcp(Path.join(build, "lib/inet_rdma/ebin"))
  end

  @tag timeout: 900_000
  test "without a toolchain and an archive rebar3 compiles, and warns", %{tree: tree, env: env} do
    said = Os.run!("rebar3", ["compile"], cd: tree, env: env)
    assert [_before, _after] = String.split(said, "warning:")
    assert said =~ @warning
    assert said =~ "cargo, Rust's build tool, is not in PATH: install Rust"
    assert said =~ "cannot be taken"
  end

  test "INET_RDMA_REQUIRE_NATIVE makes it an error", %{bin: bin, tree: tree, env: env} do
    required = env ++ [{"INET_RDMA_REQUIRE_NATIVE", "1"}]
    assert {said, 69} = Archive.build(tree, required)
    assert said =~ "there is no native library, and INET_RDMA_REQUIRE_NATIVE asks for one"
    assert said =~ "cargo, Rust's build tool, is not in PATH: install Rust"

    {said, status} = System.cmd("rebar3", ["compile"], cd: tree, env: required, stderr_to_stdout: true)
    assert status != 0
    assert said =~ "INET_RDMA_REQUIRE_NATIVE asks for one"

    for system <- ~w(Darwin FreeBSD) do
      Archive.program(bin, "uname", "echo #{system}")
      assert {said, 69} = Archive.build(tree, required)
      assert said =~ "it is for Linux, and this system is #{system}"
      assert {said, 0} = Archive.build(tree, env ++ [{"INET_RDMA_REQUIRE_NATIVE", "0"}])
      assert said =~ @warning
    end
  end

  test "a library that is there stays, and the build says so", %{tree: tree, env: env} do
    File.mkdir_p!(Path.join(tree, "priv"))
    File.write!(Archive.library(tree), "earlier")
    assert {said, 0} = Archive.build(tree, env)
    assert said =~ "priv/inet_rdma_nif.so stays as it is\ninet_rdma: cargo, Rust's build tool, is not in PATH"
    assert File.read!(Archive.library(tree)) == "earlier"
  end

  @tag timeout: 900_000
  test "a Mix project's build warns of an earlier library that its modules cannot load", context do
    %{dir: dir, tree: tree, env: env} = context
    File.mkdir_p!(Path.join(tree, "priv"))
    whole = File.read!(Archive.library(Os.root()))
    project = Path.join(tree, "test/projects/mix_cluster")
    env = env ++ [{"MIX_ENV", "dev"}, {"MIX_BUILD_PATH", Path.join(dir, "build")}]
    warning = "warning: nodes cannot load the native library of an earlier build, and their links stay on TCP"

    # One of another version has another name for a function.
    other = :binary.replace(whole, "flight_recent", "flight_recenu", [:global])

    for {library, says} <- [{other, "are of two versions"}, {"earlier", "cut off"}, {whole, nil}] do
      File.write!(Archive.library(tree), library)
      said = Os.run!("mix", ["deps.compile", "inet_rdma", "--force"], cd: project, env: env)
      assert said =~ "priv/inet_rdma_nif.so stays as it is"
      assert said =~ warning == is_binary(says)
      assert is_nil(says) or said =~ says
    end
  end

  test "where the dependency's folder is read-only the build says so, or uses the library there", context do
    %{dir: dir, tree: tree, env: env} = context
    File.mkdir_p!(Path.join(tree, "priv"))
    assert {said, 0} = read_only_build(dir, tree, env)
    assert said =~ @warning
    assert said =~ "tree/priv cannot be written: build once as a user who may write there"

    assert {said, 69} = read_only_build(dir, tree, env ++ [{"INET_RDMA_REQUIRE_NATIVE", "1"}])
    assert said =~ "tree/priv cannot be written"

    File.write!(Archive.library(tree), "earlier")
    assert {"", 0} = read_only_build(dir, tree, env ++ [{"INET_RDMA_REQUIRE_NATIVE", "1"}])
  end

  test "the VM's loader says for which machine and C library the archive must be", %{dir: dir} do
    for {loader, platform} <- [
          {"/lib64/ld-linux-x86-64.so.2", "x86_64-linux-gnu"},
          {"/nix/store/of-some-glibc/lib/ld-linux-aarch64.so.1", "aarch64-linux-gnu"},
          {"/lib/ld-musl-x86_64.so.1", "x86_64-linux-musl"},
          {"/lib/ld-musl-aarch64.so.1", "aarch64-linux-musl"}
        ] do
      assert {"#{platform}\n", 0} == platform_of(dir, loader)
    end

    assert {said, 1} = platform_of(dir, "/lib/ld-linux-armhf.so.3")
    assert said =~ "the archives are for x86-64 and arm64, and the Erlang VM has the loader ld-linux-armhf.so.3"
  end

  test "a node of another system than Linux says that there is no library for it" do
    assert :inet_rdma_library.missing({:unix, :darwin}) == "the native library is for Linux, and this system is darwin"
    assert :inet_rdma_library.missing({:unix, :linux}) =~ "mix compile and rebar3 compile make it"
  end

  # A program as far as the script reads it.
  defp platform_of(dir, loader) do
    File.write!(Path.join(dir, "beam.smp"), ["\x7FELF", 0, 2, loader, 0, "more ", loader, 0])
    System.cmd(Path.join(Os.root(), "scripts/platform"), [], env: [{"BINDIR", dir}])
  end

  # Root may write whatever the mode says, so for root the folder is a read-only mount.
  defp read_only_build(dir, tree, env) do
    script = Path.join(tree, "scripts/build-native")

    case {Os.run!("id", ["-u"]), System.cmd("unshare", ["--mount", "true"], stderr_to_stdout: true)} do
      {"0\n", {_said, 0}} ->
        shell = ~S(mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec env "$@")
        set = for {name, value} <- env, value, do: "#{name}=#{value}"
        unset = for {name, nil} <- env, do: ["-u", name]
        args = ["--mount", "sh", "-c", shell, "sh", tree] ++ List.flatten(unset) ++ set ++ [script]
        System.cmd("unshare", args, stderr_to_stdout: true, cd: dir)

      {"0\n", _may_not} ->
        flunk("root may make no mount namespace here, which the test of a read-only folder takes")

      _user ->
        File.chmod!(Path.join(tree, "priv"), 0o555)
        said = Archive.build(tree, env)
        File.chmod!(Path.join(tree, "priv"), 0o755)
        said
    end
  end

  defp links_stay_on_tcp(ebin) do
    carrier = System.get_env("TEST_CARRIER", "inet_rdma")
    node = fn name, eval -> ["-pa", ebin] ++ Os.node_args(name, carrier, "no_library") ++ ["-eval", eval] end
    first = Os.node_name("no_library_first")
    port = Os.start!("erl", node.(first, "io:format(\"ready~n\")."))
    lines = Os.await_line!(port, ~r/^ready$/)
    assert Enum.any?(lines, &(&1 =~ "inet_rdma: all links stay on TCP: priv/inet_rdma_nif.so is in no application"))

    visit = """
    First = '#{first}',
    io:format("ping ~s~n", [net_adm:ping(First)]),
    io:format("calls ~p~n", [length([ok || _ <- lists:seq(1, 500), First =:= rpc:call(First, erlang, node, [])])]),
    io:format("link ~p~n", [[{F, unicode:characters_to_binary(W)} || \#{node := N, fabric := F, why := W}
                             <- inet_rdma:info(), N =:= First]]),
    ok = rpc:call(First, init, stop, []),
    halt().
    """

    said = Os.run!("erl", node.(Os.node_name("no_library_second"), visit))
    # The node logs beside these lines.
    for line <- ["ping pong", "calls 500"], do: assert(line in String.split(said, "\n"))
    assert said =~ ~r/link \[\{tcp,\s*<<"shm: the native library of this node could not be loaded, its log says why/
    assert {0, _lines} = Os.await_exit!(port)
  end
end
