defmodule InetRdma.NativeBuildTest do
  # Changes PATH, which belongs to the whole VM.
  use ExUnit.Case, async: false

  @moduletag :cargo

  alias InetRdma.Test.Os

  # What the script itself calls, besides the tools that a test leaves out or replaces.
  @tools ~w(sh dirname uname sed grep cmp cp mv mkdir rm cat)

  # A build with cargo, or none.
  setup do
    before = Map.new(~w(PATH INET_RDMA_ARCHIVE INET_RDMA_REQUIRE_NATIVE), &{&1, System.get_env(&1)})
    on_exit(fn -> System.put_env(before) end)
    System.put_env(%{"INET_RDMA_ARCHIVE" => "source", "INET_RDMA_REQUIRE_NATIVE" => "1"})
    %{dir: Os.scratch_dir()}
  end

  test "without cargo the Mix compiler says what to install", %{dir: dir} do
    offer(dir, @tools)
    message = failure_with_path(dir)
    assert message =~ "cargo, Rust's build tool, is not in PATH"
    assert message =~ ~r/install Rust 1\.\d+ or newer from https:\/\/rustup\.rs/
  end

  test "without a compiler it says so", %{dir: dir} do
    offer(dir, @tools ++ ~w(cargo))
    assert failure_with_path(dir) =~ "rustc, the Rust compiler, is not in PATH"
  end

  test "a compiler that is too old is named, and so is the version needed", %{dir: dir} do
    offer(dir, @tools ++ ~w(cargo cc cmake))
    program(dir, "rustc", "echo 'rustc 1.63.0 (4b91a6ea7 2022-08-08)'")
    message = failure_with_path(dir)
    assert message =~ ~r/the Rust compiler is too old: found 1\.63\.0, needed 1\.\d+ or newer/
    assert message =~ "rustup update stable"
  end

  test "a compiler of the next major version is new enough", %{dir: dir} do
    offer(dir, @tools ++ ~w(cargo cc cmake))
    program(dir, "rustc", "echo 'rustc 2.0.0-nightly (4b91a6ea7 2026-08-08)'")
    assert "" == Os.run!(script(), ["--check"], env: [{"PATH", dir}])
  end

  test "without a linker it says what to install", %{dir: dir} do
    offer(dir, @tools ++ ~w(cargo))
    program(dir, "rustc", "echo 'rustc 1.99.0 (4b91a6ea7 2026-08-08)'")
    message = failure_with_path(dir)
    assert message =~ "cc, the C compiler that Rust links with, is not in PATH"
    assert message =~ "apt-get install gcc libc6-dev"
  end

  test "without cmake it says what to install", %{dir: dir} do
    offer(dir, @tools ++ ~w(cargo cc))
    program(dir, "rustc", "echo 'rustc 1.99.0 (4b91a6ea7 2026-08-08)'")
    message = failure_with_path(dir)
    assert message =~ "cmake is not in PATH"
    assert message =~ "apt-get install cmake"
  end

  test "a library without the verbs fabric takes no cmake", %{dir: dir} do
    offer(dir, @tools ++ ~w(cc))
    program(dir, "rustc", "echo 'rustc 1.99.0 (4b91a6ea7 2026-08-08)'")
    program(dir, "cargo", "echo \"$@\"; exit 101")
    environment = [{"PATH", dir}, {"INET_RDMA_FEATURES", "none"}]
    assert "" == Os.run!(script(), ["--check"], env: environment)

    {said, 101} = System.cmd(script(), [], env: environment, stderr_to_stdout: true)
    assert said =~ ~r/^build .*--package inet_rdma_nif .*--no-default-features$/m
  end

  test "an optional part that does not exist is named", %{dir: dir} do
    offer(dir, @tools ++ ~w(cargo cc cmake))
    program(dir, "rustc", "echo 'rustc 1.99.0 (4b91a6ea7 2026-08-08)'")

    {said, 69} =
      System.cmd(script(), ["--check"], env: [{"PATH", dir}, {"INET_RDMA_FEATURES", "tcp"}], stderr_to_stdout: true)

    assert said =~ "INET_RDMA_FEATURES is 'tcp', which names an unknown feature"
    assert said =~ "set it to verbs"
  end

  test "when cargo fails, its status is in the diagnostic and the library stays", %{dir: dir} do
    before = File.stat!(library())
    offer(dir, @tools ++ ~w(rustc cc cmake))
    program(dir, "cargo", "echo 'error: something in cargo' >&2; exit 101")
    assert failure_with_path(dir) =~ "cargo failed (exit status 101)"
    assert before == File.stat!(library())
  end

  test "a library that did not change is not replaced" do
    before = File.stat!(library())
    Os.run!(script(), [])
    assert before.inode == File.stat!(library()).inode
  end

  test "the library is replaced by a new file, never written into, as a running VM has it mapped", %{dir: dir} do
    # A tree of its own with a small crate, so that no other test meets the old library.
    tree = Path.join(dir, "tree")
    for sub <- ~w(scripts native/src priv), do: File.mkdir_p!(Path.join(tree, sub))
    File.cp!(script(), Path.join(tree, "scripts/build-native"))
    File.write!(Path.join(tree, "native/src/lib.rs"), "")

    File.write!(Path.join(tree, "native/Cargo.toml"), """
    [package]
    name = "inet_rdma_nif"
    edition = "2024"
    rust-version = "1.85"
    [lib]
    crate-type = ["cdylib"]
    """)

    library = Path.join(tree, "priv/inet_rdma_nif.so")
    File.write!(library, "old")
    mapped = File.open!(library, [:read, :binary])
    Os.run!(Path.join(tree, "scripts/build-native"), [], env: [{"CARGO_TARGET_DIR", nil}])

    assert <<0x7F, "ELF", _rest::binary>> = File.read!(library)
    assert "old" == IO.binread(mapped, :eof)
    assert ["inet_rdma_nif.so"] == File.ls!(Path.dirname(library))
  end

  test "Rust, Erlang and Elixir name the same version" do
    manifest = File.read!(Path.join(Os.root(), "native/Cargo.toml"))
    [_, native] = Regex.run(~r/^version = "(.+)"$/m, manifest)
    assert native == to_string(Application.spec(:inet_rdma, :vsn))
  end

  defp script, do: Path.join(Os.root(), "scripts/build-native")
  defp library, do: Path.join(Os.root(), "priv/inet_rdma_nif.so")

  defp offer(dir, names) do
    File.mkdir_p!(dir)
    for name <- names, do: File.ln_s!(System.find_executable(name), Path.join(dir, name))
  end

  defp program(dir, name, body) do
    file = Path.join(dir, name)
    File.write!(file, "#!/bin/sh\n#{body}\n")
    File.chmod!(file, 0o755)
  end

  # The Mix compiler as `mix compile` calls it.
  defp failure_with_path(dir) do
    System.put_env("PATH", dir)
    {:error, [diagnostic]} = silently(fn -> Mix.Tasks.Compile.InetRdmaNative.run([]) end)
    assert %Mix.Task.Compiler.Diagnostic{severity: :error, compiler_name: "inet_rdma_native"} = diagnostic
    diagnostic.message
  end

  defp silently(fun) do
    ExUnit.CaptureIO.with_io(:stderr, fun) |> elem(0)
  end
end
