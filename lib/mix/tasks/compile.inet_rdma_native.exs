# A script, not a module of the application: mix.exs requires it, because Mix needs this task before
# anything of the project is compiled, and a release has no use for it.
defmodule Mix.Tasks.Compile.InetRdmaNative do
  @shortdoc "Builds the native library of inet_rdma with cargo, or takes it from an archive"
  @moduledoc """
  Makes `priv/inet_rdma_nif.so` by running `scripts/build-native`.

  With the environment variable `INET_RDMA_ARCHIVE`, a file or a URL, the library comes out of that archive, and no Rust
  toolchain is needed. `INET_RDMA_ARCHIVE_SHA256` says which checksum the archive must have. A wrong checksum is an
  error. An archive that cannot be had, or is for another machine, is left, and cargo builds.

  Cargo's output is shown as it comes. A failure becomes a diagnostic that ends with what to install.
  Cargo itself knows what is up to date, so there is no manifest.
  """
  use Mix.Task.Compiler

  @script Path.expand("../../../scripts/build-native", __DIR__)
  @prefix "inet_rdma: "

  @impl Mix.Task.Compiler
  def run(_args) do
    port = Port.open({:spawn_executable, @script}, [:binary, :exit_status, :stderr_to_stdout, {:line, 4096}])

    case stream(port, []) do
      {0, _said} -> {:ok, []}
      {status, said} -> {:error, [diagnostic(status, said)]}
    end
  end

  # Shows each line at once; keeps the script's own, which say what is wrong and what to do.
  defp stream(port, said) do
    receive do
      {^port, {:data, {ending, line}}} ->
        IO.write(:stderr, if(ending == :eol, do: [line, ?\n], else: line))
        stream(port, if(String.starts_with?(line, @prefix), do: [line | said], else: said))

      {^port, {:exit_status, status}} ->
        {status, Enum.reverse(said)}
    end
  end

  defp diagnostic(status, said) do
    %Mix.Task.Compiler.Diagnostic{
      compiler_name: "inet_rdma_native",
      details: {:exit_status, status},
      file: @script,
      message: Enum.map_join(said, "\n", &String.replace_prefix(&1, @prefix, "")),
      position: 0,
      severity: :error
    }
  end
end
