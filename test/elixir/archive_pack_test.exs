defmodule InetRdma.ArchivePackTest do
  # What an archive says of the C library that its library needs.
  use ExUnit.Case, async: true

  # To list the crates.
  @moduletag :cargo

  alias InetRdma.Test.Os

  setup do
    dir = Os.scratch_dir()
    File.write!(Path.join(dir, "one.c"), "int getpid(void); int one(void) { return getpid(); }\n")
    %{dir: dir}
  end

  test "the archive of a library for the GNU C library names the version", %{dir: dir} do
    library = Path.join(Os.root(), "priv/inet_rdma_nif.so")
    assert {archive, 0} = pack(library, dir)
    name = Path.basename(archive, ".tar.gz")
    assert name =~ ~r/-aarch64-linux-gnu$/
    assert contents(archive, "#{name}/libc") =~ ~r/\Aglibc 2\.\d+\n\z/
    assert contents(archive, "#{name}/inet_rdma_nif.so") == File.read!(library)
  end

  unless System.find_executable("musl-gcc"), do: @tag(skip: "there is no musl-gcc (Debian: musl-tools)")

  test "the archive of a library for musl says so", %{dir: dir} do
    library = compile!("musl-gcc", dir, [])
    assert {archive, 0} = pack(library, dir)
    name = Path.basename(archive, ".tar.gz")
    assert name =~ ~r/-aarch64-linux-musl$/
    assert contents(archive, "#{name}/libc") == "musl\n"
  end

  test "a library that names no C library is refused", %{dir: dir} do
    library = compile!("cc", dir, ["-nostdlib"])
    assert {said, 65} = pack(library, dir)
    assert said =~ "neither a symbol of the GNU C library nor the name of musl's in #{library}"
    assert said =~ "scripts/dist"
  end

  # For a machine that this one need not be: pack believes what it is told.
  defp pack(library, dir) do
    script = Path.join(Os.root(), "scripts/archive")
    {said, status} = System.cmd(script, ["pack", library, "aarch64", dir], stderr_to_stdout: true)
    # Cargo may say before the path that it waits for another cargo.
    {if(status == 0, do: said |> String.split("\n", trim: true) |> List.last(), else: said), status}
  end

  defp compile!(compiler, dir, flags) do
    library = Path.join(dir, "one.so")
    Os.run!(compiler, ["-shared", "-fPIC" | flags] ++ ["-o", library, Path.join(dir, "one.c")])
    library
  end

  defp contents(archive, file), do: Os.run!("tar", ["-xzOf", archive, file])
end
