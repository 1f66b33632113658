defmodule InetRdma.InstallTest do
  # What a build does on machines without a toolchain, without a network, behind a proxy. A local server has the
  # release.
  use ExUnit.Case, async: true

  # To pack the archive.
  @moduletag :cargo

  alias InetRdma.Test.{Archive, Os}

  @warning "warning: there is no native library: nodes start, and all their links stay on TCP"

  setup_all do
    %{dist: Archive.packed()}
  end

  setup %{dist: dist} do
    dir = Os.scratch_dir()
    tree = Archive.tree!(Path.join(dir, "tree"))
    {server, address} = Archive.serve!(dist)
    bin = Path.join(dir, "bin")

    %{
      dir: dir,
      tree: tree,
      server: server,
      address: address,
      release: "#{address}/files/#{Archive.name()}",
      cache: Path.join(bin, "cache/inet_rdma"),
      env: Archive.no_toolchain(bin)
    }
  end

  test "without a toolchain the build takes the release's archive, once", context do
    %{tree: tree, env: env, server: server, address: address, release: release} = context
    publish(tree, address <> "/files")
    assert {said, 0} = Archive.build(tree, env)
    assert said =~ "took the native library from #{release}"
    assert File.read!(Archive.library(tree)) == File.read!(Archive.library(Os.root()))

    stop(server)
    assert {"", 0} = Archive.build(tree, env)
    # Another project of this user, or another folder of dependencies.
    File.rm_rf!(Path.join(tree, "priv"))
    assert {said, 0} = Archive.build(tree, env)
    assert said =~ "took the native library from #{release}"
  end

  test "with a toolchain it takes the release's archive on request only", context do
    %{dir: dir, tree: tree, address: address, release: release} = context
    env = Archive.cargo_that_fails(Path.join(dir, "failing"))
    publish(tree, address <> "/files")
    assert {said, 101} = Archive.build(tree, env)
    assert said =~ Archive.fails()
    refute said =~ "cannot be taken"

    assert {said, 0} = Archive.build(tree, env ++ [{"INET_RDMA_ARCHIVE", "release"}])
    assert said =~ "took the native library from #{release}"
  end

  test "with the value source no archive is taken", %{tree: tree, address: address, env: env} do
    publish(tree, address <> "/files")
    assert {said, 0} = Archive.build(tree, env ++ [{"INET_RDMA_ARCHIVE", "source"}])
    assert said =~ @warning
    assert said =~ "cargo, Rust's build tool, is not in PATH: install Rust"
    refute said =~ "cannot be taken"
  end

  test "another sum than the package's is refused, with a toolchain and without", context do
    %{dir: dir, tree: tree, address: address, env: env} = context
    publish(tree, address <> "/files")
    list = list(tree)
    File.write!(list, Regex.replace(~r/^[0-9a-f]{64}/m, File.read!(list), String.duplicate("0", 64)))

    for env <- [env, Archive.cargo_that_fails(Path.join(dir, "failing")) ++ [{"INET_RDMA_ARCHIVE", "release"}]] do
      assert {said, 65} = Archive.build(tree, env)
      assert said =~ ~r/the archive .* is refused: its SHA-256 sum is \w{64}, and must be 0{64}/
      refute said =~ Archive.fails()
      refute File.exists?(Archive.library(tree))
    end
  end

  test "without a network the build goes on without the library, and says what to do", context do
    %{tree: tree, server: server, address: address, env: env} = context
    publish(tree, address <> "/files")
    stop(server)
    assert {said, 0} = Archive.build(tree, env)
    assert said =~ @warning
    assert said =~ "#{Archive.name()} cannot be taken: it cannot be fetched ("
    assert said =~ "without a network set INET_RDMA_ARCHIVE to a directory or a mirror that has #{Archive.name()}"

    assert {said, 69} = Archive.build(tree, env ++ [{"INET_RDMA_REQUIRE_NATIVE", "1"}])
    assert said =~ "there is no native library, and INET_RDMA_REQUIRE_NATIVE asks for one"
    assert said =~ "cannot be fetched ("
  end

  test "a version that is not released says so", %{tree: tree, env: env} do
    assert {said, 0} = Archive.build(tree, env)
    assert said =~ @warning
    assert said =~ "this version is not released: scripts/archives.sha256 names no address"
  end

  test "it goes over the proxy of the environment", context do
    %{tree: tree, server: server, address: address, env: env} = context
    release = "http://releases.invalid/files/#{Archive.name()}"
    publish(tree, "http://releases.invalid/files/")
    assert {said, 0} = Archive.build(tree, env ++ [{"http_proxy", address}])
    assert said =~ "took the native library from #{release}"
    Os.await_line!(server, ~r(^GET #{release} 200$))
  end

  test "a proxy that does not let it through is named in the text", context do
    %{tree: tree, server: server, address: address, env: env} = context
    publish(tree, "https://releases.invalid/files")
    assert {said, 0} = Archive.build(tree, env ++ [{"https_proxy", address}])
    Os.await_line!(server, ~r/^CONNECT releases.invalid:443 501$/)
    assert said =~ ~r/cannot be fetched \(curl: .*501.*\)\. Behind a proxy set https_proxy/
  end

  test "a directory or a mirror has archives under their names", context do
    %{dir: dir, tree: tree, dist: dist, address: address, env: env} = context

    for place <- [dist, dist <> "/", address <> "/mirror/", address <> "/mirror"] do
      File.rm_rf!(Path.join(tree, "priv"))
      publish(tree, "https://releases.invalid/")
      assert {said, 0} = Archive.build(tree, env ++ [{"INET_RDMA_ARCHIVE", place}])
      assert said =~ "took the native library from #{String.trim_trailing(place, "/")}/"
    end

    assert {said, 0} = Archive.build(tree, env ++ [{"INET_RDMA_ARCHIVE", dir}])
    assert said =~ "the archive #{dir}/#{Archive.name()} cannot be taken: there is no such file"
    assert said =~ "priv/inet_rdma_nif.so stays as it is"
  end

  test "a mirror that has another archive is refused", %{dir: dir, tree: tree, env: env, dist: dist} do
    mirror = Path.join(dir, "mirror")
    File.cp_r!(dist, mirror)
    File.write!(Archive.in_dir(mirror), "more", [:append])
    Os.run!("sh", ["-c", "sha256sum #{Archive.name()} >#{Archive.name()}.sha256"], cd: mirror)
    publish(tree, "https://releases.invalid/")
    assert {said, 65} = Archive.build(tree, env ++ [{"INET_RDMA_ARCHIVE", mirror}])
    assert said =~ "is refused"
  end

  test "a value that names nothing says which there are", %{tree: tree, env: env} do
    assert {said, 0} = Archive.build(tree, env ++ [{"INET_RDMA_ARCHIVE", "somewhere"}])
    assert said =~ "INET_RDMA_ARCHIVE must be release, source, an absolute path or a URL"
  end

  test "an interrupted fetch goes on where it stopped", context do
    %{tree: tree, server: server, address: address, env: env, cache: cache} = context
    publish(tree, address <> "/cut")
    assert {said, 0} = Archive.build(tree, env)
    assert said =~ "cannot be fetched"
    assert [part] = File.ls!(cache)
    assert part =~ ~r/\.part$/

    assert {said, 0} = Archive.build(tree, env)
    assert said =~ "took the native library from"
    Os.await_line!(server, ~r(^GET /cut/\S+ 200$))
    Os.await_line!(server, ~r(^GET /cut/\S+ 206$))
    assert File.ls!(cache) == [Archive.name()]
  end

  test "what was fetched in part is fetched whole from a server without ranges, and if it is damaged", context do
    %{tree: tree, address: address, env: env, cache: cache, dist: dist} = context
    [sum, _name] = String.split(File.read!(Archive.in_dir(dist) <> ".sha256"))

    for manner <- ~w(whole files) do
      publish(tree, "#{address}/#{manner}")
      File.rm_rf!(cache)
      File.mkdir_p!(cache)
      File.write!(Path.join(cache, "#{Archive.name()}.#{sum}.part"), "damaged")
      File.rm_rf!(Path.join(tree, "priv"))
      assert {said, 0} = Archive.build(tree, env)
      assert said =~ "took the native library from"
    end
  end

  test "a fetch that takes long says how far it is", %{tree: tree, address: address, env: env} do
    publish(tree, address <> "/slow")
    assert {said, 0} = Archive.build(tree, env)
    assert said =~ ~r(inet_rdma: fetching #{address}/slow/\S+: \d+ KiB so far\n)
    assert said =~ "took the native library from"
  end

  test "where there is no curl, wget fetches", %{dir: dir, tree: tree, address: address, env: env} do
    if wget = System.find_executable("wget") do
      publish(tree, address <> "/cut")
      File.rm!(Path.join(dir, "bin/curl"))
      assert {said, 0} = Archive.build(tree, env)
      assert said =~ "it takes curl or wget, and neither is in PATH"

      File.ln_s!(wget, Path.join(dir, "bin/wget"))
      assert {said, 0} = Archive.build(tree, env)
      assert said =~ "cannot be fetched"
      assert {said, 0} = Archive.build(tree, env)
      assert said =~ "took the native library from"
    else
      IO.puts("skipped: there is no wget on this machine")
    end
  end

  test "busybox alone is enough, as on Alpine", %{dir: dir, tree: tree, address: address, env: env} do
    if busybox = System.find_executable("busybox") do
      bin = Path.join(dir, "busybox")
      File.mkdir_p!(bin)
      for name <- String.split(Os.run!(busybox, ["--list"])), do: File.ln_s!(busybox, Path.join(bin, name))
      for name <- ~w(erl getconf), do: File.ln_s!(System.find_executable(name), Path.join(bin, name))
      publish(tree, address <> "/files")

      env = env ++ [{"PATH", bin}]
      script = Path.join(tree, "scripts/build-native")
      assert {said, 0} = System.cmd(busybox, ["sh", script], env: env, stderr_to_stdout: true)
      assert said =~ "took the native library from #{address}/files/"
    else
      IO.puts("skipped: there is no busybox on this machine")
    end
  end

  test "the demo of an archive shows a link that moves, with erl alone", %{dir: dir, dist: dist, env: env} do
    Os.run!("tar", ["-xzf", Archive.in_dir(dist), "-C", dir])
    demo = Path.join([dir, Path.basename(Archive.name(), ".tar.gz"), "demo"])
    said = Os.run!(demo, [], env: env)
    assert said =~ ~r/the link as it begins:\n.*\n\S+ +tcp +up .* it has not moved yet/
    assert said =~ ~r/after some calls:\n.*\n\S+ +shm +up /

    assert {said, 69} = System.cmd(demo, [], env: env ++ [{"ERL", "no-erl"}], stderr_to_stdout: true)
    assert said =~ "demo: there is no no-erl in PATH: install Erlang/OTP 25 or later, or set ERL to its path"
  end

  test "the package's list names what a directory has", %{tree: tree, dist: dist} do
    publish(tree, "https://releases.invalid/v1")
    assert File.read!(list(tree)) =~ ~r(^# address: https://releases.invalid/v1$)m
    assert File.read!(list(tree)) =~ File.read!(Archive.in_dir(dist) <> ".sha256")
    before = File.read!(list(tree))
    publish(tree, "https://releases.invalid/v1")
    assert File.read!(list(tree)) == before
  end

  # As a release does.
  defp publish(tree, address) do
    Os.run!(Path.join(tree, "scripts/archive"), ["list", Archive.packed(), address])
  end

  defp list(tree), do: Archive.list(tree)

  defp stop(server) do
    {:os_pid, pid} = Port.info(server, :os_pid)
    Os.run!("kill", [to_string(pid)])
    {_status, _lines} = Os.await_exit!(server)
  end
end
