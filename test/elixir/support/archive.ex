defmodule InetRdma.Test.Archive do
  @moduledoc """
  Archives of the native library, and trees that have no library yet.
  """

  alias InetRdma.Test.Os

  @fails "cargo has been called"

  @doc "The directory of an archive of this tree's library for this machine. It is packed once for all tests."
  def packed do
    :global.trans({__MODULE__, self()}, fn ->
      dir = Path.join(System.tmp_dir!(), "inet_rdma_archive_#{System.pid()}")
      unless File.exists?(dir), do: pack(dir, machine())
      ExUnit.after_suite(fn _result -> File.rm_rf!(dir) end)
      dir
    end)
  end

  @doc "Packs this tree's library, whatever machine the name says. Gives the path of the archive."
  def pack(dir, machine) do
    File.mkdir_p!(dir)
    script = Path.join(Os.root(), "scripts/archive")
    # Cargo may say before it that it waits for another cargo.
    Os.run!(script, ["pack", library(Os.root()), machine, dir]) |> String.split("\n", trim: true) |> List.last()
  end

  @doc "The archive for this machine's VM in a directory."
  def in_dir(dir), do: Path.join(dir, name())

  @doc "Its file name."
  def name do
    platform = String.trim(Os.run!(Path.join(Os.root(), "scripts/platform"), []))
    "inet_rdma-#{Application.spec(:inet_rdma, :vsn)}-#{platform}.tar.gz"
  end

  def machine, do: String.trim(Os.run!("uname", ["-m"]))

  @doc "Makes a tree with all that a build from an archive needs: no Rust source is there. Its version has no release."
  def tree!(tree) do
    for file <-
          ~w(mix.exs rebar.config lib src inet_rdma_tools scripts native/Cargo.toml) ++
            ~w(test/projects/mix_cluster/mix.exs test/projects/mix_cluster/lib) do
      File.mkdir_p!(Path.dirname(Path.join(tree, file)))
      File.cp_r!(Path.join(Os.root(), file), Path.join(tree, file))
    end

    File.write!(list(tree), "# address:\n")
    tree
  end

  @doc "The package's list of the archives of its release."
  def list(tree), do: Path.join(tree, "scripts/archives.sha256")

  def library(root), do: Path.join(root, "priv/inet_rdma_nif.so")

  @doc "The words that a tree's cargo of cargo_that_fails/1 prints."
  def fails, do: @fails

  @doc """
  The environment of a build whose programs `cargo` and `rustc` are in `dir`, before those of PATH: the first one fails,
  and says so.
  """
  def cargo_that_fails(dir) do
    program(dir, "cargo", "echo '#{@fails}' >&2; exit 101")
    program(dir, "rustc", "echo 'rustc 9.0.0'")
    environment(dir, dir <> ":" <> System.fetch_env!("PATH"))
  end

  @doc "The environment of a build without a toolchain: PATH is a directory that has what the scripts call."
  def no_toolchain(dir) do
    File.mkdir_p!(dir)

    for name <-
          ~w(awk basename bash cat cmp cp curl cut dirname elixir env erl erlc escript expr getconf grep gzip head) ++
            ~w(ls mix mkdir mktemp mv readlink rebar3 rm sed sh sha256sum sleep sort tail tar tr uname wc),
        program = System.find_executable(name),
        do: File.ln_s!(program, Path.join(dir, name))

    environment(dir, dir)
  end

  # No variable of this run, and a cache of its own.
  defp environment(dir, path) do
    [{"PATH", path}, {"XDG_CACHE_HOME", Path.join(dir, "cache")}] ++
      for name <-
            ~w(CARGO RUSTC INET_RDMA_ARCHIVE INET_RDMA_ARCHIVE_SHA256 INET_RDMA_REQUIRE_NATIVE INET_RDMA_FEATURES) ++
              ~w(http_proxy https_proxy all_proxy HTTPS_PROXY ALL_PROXY no_proxy NO_PROXY),
          do: {name, nil}
  end

  @doc "Makes a program of the shell in a directory."
  def program(dir, name, body) do
    file = Path.join(dir, name)
    File.mkdir_p!(dir)
    File.rm(file)
    File.write!(file, "#!/bin/sh\n#{body}\n")
    File.chmod!(file, 0o755)
  end

  @doc "Runs the native build of a tree."
  def build(tree, env) do
    System.cmd(Path.join(tree, "scripts/build-native"), [], env: env, stderr_to_stdout: true)
  end

  @doc "Serves a directory by HTTP, with a `pem` by HTTPS: see file_server.py. Gives the server and its address."
  def serve!(dir, pem \\ nil) do
    server = Os.start!("python3", ["-B", Path.join(__DIR__, "file_server.py"), dir | List.wrap(pem)])
    [_line, port] = Regex.run(~r/^port (\d+)/, List.last(Os.await_line!(server, ~r/^port \d+$/)))
    {server, "#{if pem, do: "https", else: "http"}://127.0.0.1:#{port}"}
  end
end
