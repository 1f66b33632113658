# A script, not a module of the application: mix.exs requires it, because Mix needs this task before
# anything of the project is compiled, and a release has no use for it.
defmodule Mix.Tasks.Compile.InetRdmaNative do
  @shortdoc "Builds the native library of inet_rdma with cargo, or takes it from an archive"
  @moduledoc """
  Makes `priv/inet_rdma_nif.so` by running `scripts/build-native`, which says in its head which environment variables
  choose between cargo and an archive. `docs/DEPLOY.md` has the table.

  A library that cannot be had is a warning: nodes start without it, and their links stay on TCP. With
  `INET_RDMA_REQUIRE_NATIVE=1` it is an error. An archive with a wrong checksum, and a build that fails, are errors.

  Where the library of an earlier build stays, a node tries to load it: a library that does not fit the modules is a
  warning.

  The script's output is shown as it comes. A failure or warning becomes a diagnostic that ends with what to do.
  Cargo itself knows what is up to date, so there is no manifest.
  """
  use Mix.Task.Compiler

  @script Path.expand("../../../scripts/build-native", __DIR__)
  @prefix "inet_rdma: "
  @warning "warning: "
  @stays "stays as it is"

  @impl Mix.Task.Compiler
  def run(_args) do
    port = Port.open({:spawn_executable, @script}, [:binary, :exit_status, :stderr_to_stdout, {:line, 4096}])

    case stream(port, []) do
      {0, said} -> {:ok, warnings(Enum.drop_while(said, &(not is_warning(&1)))) ++ earlier_library(said)}
      {status, said} -> {:error, [diagnostic(:error, status, said)]}
    end
  end

  defp is_warning(line), do: String.starts_with?(line, @prefix <> @warning)

  # The warning is the last that the script says.
  defp warnings([]), do: []

  defp warnings([first | rest]),
    do: [diagnostic(:warning, 0, [String.replace(first, @warning, "", global: false) | rest])]

  # A node of its own, as the library stays mapped in a VM that has loaded it.
  @load """
  case inet_rdma_nif:load() of
      ok -> halt(0);
      {error, Reason} -> io:put_chars(inet_rdma:format_error(Reason)), halt(1)
  end.
  """

  defp earlier_library(said) do
    erl = Path.join([:code.root_dir(), "bin", "erl"])
    args = ["-noinput", "-boot", "start_clean", "-pa", Mix.Project.compile_path(), "-eval", @load]

    with true <- Enum.any?(said, &String.contains?(&1, @stays)), {why, 1} <- System.cmd(erl, args) do
      said = ["nodes cannot load the native library of an earlier build, and their links stay on TCP: " <> why]
      IO.puts(:stderr, [@prefix, @warning | said])
      [diagnostic(:warning, 0, said)]
    else
      _none_or_loaded -> []
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

  defp diagnostic(severity, status, said) do
    %Mix.Task.Compiler.Diagnostic{
      compiler_name: "inet_rdma_native",
      details: {:exit_status, status},
      file: @script,
      message: Enum.map_join(said, "\n", &String.replace_prefix(&1, @prefix, "")),
      position: 0,
      severity: severity
    }
  end
end
