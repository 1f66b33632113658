defmodule InetRdma.ArchiveTest do
  # Without a toolchain: the library comes out of an archive. `cargo` and `rustc` are programs that fail, and say so.
  use ExUnit.Case, async: true

  # To pack the archive.
  @moduletag :cargo

  alias InetRdma.Test.{Archive, Os, Project}

  @fails Archive.fails()

  setup_all do
    %{packed: Archive.in_dir(Archive.packed())}
  end

  setup %{packed: packed} do
    dir = Os.scratch_dir()
    tree = Archive.tree!(Path.join(dir, "tree"))
    archive = Path.join(dir, Path.basename(packed))
    for suffix <- ["", ".sha256"], do: File.cp!(packed <> suffix, archive <> suffix)

    %{
      dir: dir,
      tree: tree,
      archive: archive,
      env: Archive.cargo_that_fails(Path.join(dir, "bin")) ++ [{"INET_RDMA_ARCHIVE", archive}]
    }
  end

  @tag timeout: 900_000
  test "a Mix project compiles and forms a cluster", %{tree: tree, archive: archive, env: env} do
    assert Project.mix_cluster!(tree, env) =~ "took the native library from #{archive}"
  end

  @tag timeout: 900_000
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
    env = env ++ [{"INET_RDMA_ARCHIVE_SHA256", String.duplicate("0", 64)}]
    {said, status} = System.cmd("rebar3", ["compile"], cd: tree, env: env, stderr_to_stdout: true)
    assert status != 0
    assert said =~ ~r/is refused: its SHA-256 sum is \w{64}, and must be 0{64}/
    refute said =~ @fails
    refute File.exists?(library(tree))
  end

  test "an archive that changes after its checksum was compared is not used", context do
    %{dir: dir, tree: tree, archive: archive, env: env} = context
    other = Path.join(dir, "other")
    File.mkdir_p!(Path.join(other, "content"))
    Os.run!("tar", ["-xzf", archive, "-C", Path.join(other, "content")])
    [name] = File.ls!(Path.join(other, "content"))
    File.write!(Path.join([other, "content", name, "inet_rdma_nif.so"]), "of somebody else")
    Os.run!("tar", ["-czf", Path.join(other, "archive"), "-C", Path.join(other, "content"), name])
    # Another user who may write there replaces the archive as soon as its sum is known.
    sum = System.find_executable("sha256sum")
    program = "'#{sum}' \"$@\"; cp '#{other}/archive' '#{archive}'"
    Archive.program(Path.join(dir, "bin"), "sha256sum", program)
    assert {_said, 0} = build(tree, env)
    assert File.read!(archive) == File.read!(Path.join(other, "archive"))
    assert File.read!(library(tree)) == File.read!(library(Os.root()))
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
    other = if Archive.machine() == "x86_64", do: "aarch64", else: "x86_64"
    archive = Archive.pack(Path.join(dir, "other"), other)
    assert {said, 101} = build(tree, env ++ [{"INET_RDMA_ARCHIVE", archive}])

    assert said =~ ~r/it has inet_rdma-[\d.]+-#{other}-linux-gnu, and this machine needs inet_rdma-[\d.]+-/
    assert said =~ @fails
  end

  test "a library that needs a newer C library is left to newer machines", %{dir: dir, tree: tree, env: env} do
    Archive.program(Path.join(dir, "bin"), "getconf", "echo glibc 2.17")
    assert {said, 101} = build(tree, env)
    assert said =~ ~r/needs the GNU C library 2\.\d+ or newer, and this machine has 2\.17/
    assert said =~ @fails
  end

  test "a URL is fetched once, kept in the user's cache, and needs a checksum from elsewhere", context do
    %{dir: dir, tree: tree, archive: archive, env: env} = context

    {server, address} = Archive.serve!(dir)
    url = "#{address}/files/#{Path.basename(archive)}"
    env = env ++ [{"INET_RDMA_ARCHIVE", url}]
    assert {said, 65} = build(tree, env)
    assert said =~ "nothing says which checksum it must have"

    [sum, _name] = String.split(File.read!(archive <> ".sha256"))
    env = env ++ [{"INET_RDMA_ARCHIVE_SHA256", sum}]
    assert {said, 0} = build(tree, env)
    assert said =~ "took the native library from #{url}"

    {:os_pid, pid} = Port.info(server, :os_pid)
    Os.run!("kill", [to_string(pid)])
    {_status, _lines} = Os.await_exit!(server)
    assert {"", 0} = build(tree, env)
    File.write!(library(tree), "another")
    assert {said, 0} = build(tree, env)
    assert said =~ "took the native library from #{url}"

    File.write!(library(tree), "another")
    File.rm_rf!(Path.join(dir, "bin/cache"))
    assert {said, 101} = build(tree, env)
    assert said =~ "it cannot be fetched"
  end

  defp build(tree, env), do: Archive.build(tree, env)
  defp library(root), do: Archive.library(root)
end
