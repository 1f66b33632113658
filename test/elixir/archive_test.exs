defmodule InetRdma.ArchiveTest do
  # Without a toolchain: the library comes out of an archive. `cargo` and `rustc` are programs that fail, and say so.
  use ExUnit.Case, async: true

  # To pack the archive.
  @moduletag :cargo

  alias InetRdma.Test.{Os, Project}

  @fails "cargo has been called"

  setup_all do
    dir = Path.join(System.tmp_dir!(), "inet_rdma_archive_#{System.pid()}")
    on_exit(fn -> File.rm_rf!(dir) end)
    %{packed: pack(dir, machine())}
  end

  setup %{packed: packed} do
    dir = Os.scratch_dir()
    tree = Path.join(dir, "tree")

    # All that a build from an archive needs: no Rust source is there.
    for file <-
          ~w(mix.exs rebar.config lib src scripts native/Cargo.toml test/projects/mix_cluster/mix.exs) ++
            ~w(test/projects/mix_cluster/lib) do
      File.mkdir_p!(Path.dirname(Path.join(tree, file)))
      File.cp_r!(Path.join(Os.root(), file), Path.join(tree, file))
    end

    archive = Path.join(dir, Path.basename(packed))
    for suffix <- ["", ".sha256"], do: File.cp!(packed <> suffix, archive <> suffix)
    %{dir: dir, tree: tree, archive: archive, env: [{"INET_RDMA_ARCHIVE", archive} | without_cargo(dir)]}
  end

  @tag timeout: 300_000
  test "a Mix project compiles and forms a cluster", %{tree: tree, archive: archive, env: env} do
    assert Project.mix_cluster!(tree, env) =~ "took the native library from #{archive}"
  end

  @tag timeout: 300_000
  test "a rebar3 project compiles and forms a cluster", %{tree: tree, env: env} do
    Project.rebar_cluster!(tree, env)
    assert File.read!(library(tree)) == File.read!(library(Os.root()))
  end

  test "a wrong checksum is refused by Mix, and cargo is not called", %{tree: tree, archive: archive, env: env} do
    File.write!(archive, "more", [:append])
    {said, status} = System.cmd("mix", ["compile"], cd: tree, env: env, stderr_to_stdout: true)
    assert status != 0
    assert said =~ ~r/the archive #{archive} is refused: its SHA-256 sum is \w{64}, and must be \w{64}/
    refute said =~ @fails
    refute File.exists?(library(tree))
  end

  test "a wrong checksum is refused by rebar3, and cargo is not called", %{tree: tree, env: env} do
    env = [{"INET_RDMA_ARCHIVE_SHA256", String.duplicate("0", 64)} | env]
    {said, status} = System.cmd("rebar3", ["compile"], cd: tree, env: env, stderr_to_stdout: true)
    assert status != 0
    assert said =~ ~r/is refused: its SHA-256 sum is \w{64}, and must be 0{64}/
    refute said =~ @fails
    refute File.exists?(library(tree))
  end

  test "an archive without a checksum is refused", %{tree: tree, archive: archive, env: env} do
    File.rm!(archive <> ".sha256")
    assert {said, 65} = build(tree, env)
    assert said =~ "nothing says which checksum it must have"
    assert said =~ "set INET_RDMA_ARCHIVE_SHA256"
    refute File.exists?(library(tree))
  end

  test "without the archive cargo builds, and the build says why", %{tree: tree, archive: archive, env: env} do
    File.rm!(archive)
    assert {said, 101} = build(tree, env)
    assert said =~ "the archive #{archive} cannot be taken: there is no such file"
    assert said =~ "building the native library with cargo instead"
    assert said =~ @fails
  end

  test "an archive for another machine is left to that machine", %{dir: dir, tree: tree, env: env} do
    other = if machine() == "x86_64", do: "aarch64", else: "x86_64"
    archive = pack(Path.join(dir, "other"), other)
    assert {said, 101} = build(tree, env ++ [{"INET_RDMA_ARCHIVE", archive}])
    assert said =~ ~r/it has inet_rdma-[\d.]+-#{other}-linux-gnu, and this machine needs inet_rdma-[\d.]+-#{machine()}-/
    assert said =~ @fails
  end

  test "a library that needs a newer C library is left to newer machines", %{dir: dir, tree: tree, env: env} do
    program(dir, "getconf", "echo glibc 2.17")
    assert {said, 101} = build(tree, env)
    assert said =~ ~r/needs the GNU C library 2\.\d+ or newer, and this machine has 2\.17/
    assert said =~ @fails
  end

  test "a URL is fetched once, and needs a checksum from elsewhere", context do
    %{dir: dir, tree: tree, archive: archive, env: env} = context

    server = Os.start!("python3", ~w(-u -m http.server 0 --bind 127.0.0.1 --directory) ++ [dir])
    serving = ~r/^Serving HTTP on 127\.0\.0\.1 port (\d+)/
    [_line, port] = Regex.run(serving, List.last(Os.await_line!(server, serving)))
    url = "http://127.0.0.1:#{port}/#{Path.basename(archive)}"
    env = env ++ [{"INET_RDMA_ARCHIVE", url}]
    assert {said, 65} = build(tree, env)
    assert said =~ "nothing says which checksum it must have"

    [sum, _name] = String.split(File.read!(archive <> ".sha256"))
    env = [{"INET_RDMA_ARCHIVE_SHA256", sum} | env]
    assert {said, 0} = build(tree, env)
    assert said =~ "took the native library from #{url}"

    {:os_pid, pid} = Port.info(server, :os_pid)
    Os.run!("kill", [to_string(pid)])
    {_status, _lines} = Os.await_exit!(server)
    assert {"", 0} = build(tree, env)
    File.write!(library(tree), "another")
    assert {said, 101} = build(tree, env)
    assert said =~ "it cannot be fetched"
  end

  defp build(tree, env) do
    System.cmd(Path.join(tree, "scripts/build-native"), [], env: env, stderr_to_stdout: true)
  end

  # The library of this tree, whatever machine the name says.
  defp pack(dir, machine) do
    File.mkdir_p!(dir)
    script = Path.join(Os.root(), "scripts/archive")
    # Cargo may say before it that it waits for another cargo.
    Os.run!(script, ["pack", library(Os.root()), machine, dir]) |> String.split("\n", trim: true) |> List.last()
  end

  defp library(root), do: Path.join(root, "priv/inet_rdma_nif.so")

  defp machine, do: String.trim(Os.run!("uname", ["-m"]))

  # A directory in front of PATH, with these two.
  defp without_cargo(dir) do
    bin = Path.join(dir, "bin")
    File.mkdir_p!(bin)
    program(dir, "cargo", "echo '#{@fails}' >&2; exit 101")
    program(dir, "rustc", "echo 'rustc 9.0.0'")
    [{"PATH", bin <> ":" <> System.fetch_env!("PATH")}, {"CARGO", nil}, {"RUSTC", nil}]
  end

  defp program(dir, name, body) do
    file = Path.join([dir, "bin", name])
    File.write!(file, "#!/bin/sh\n#{body}\n")
    File.chmod!(file, 0o755)
  end
end
