# A script, not a module of the application: see compile.inet_rdma_native.exs.
defmodule Mix.Tasks.Compile.InetRdmaTools do
  @shortdoc "Compiles the application inet_rdma_tools"
  @moduledoc """
  Compiles the doctor, certify and the reader of the flight recorder's files by running `scripts/build-tools`.
  """
  use Mix.Task.Compiler

  @script Path.expand("../../../scripts/build-tools", __DIR__)

  @impl Mix.Task.Compiler
  def run(_args) do
    escript = System.find_executable("escript") || Path.join([:code.root_dir(), "bin", "escript"])
    File.exists?(escript) || Mix.raise("there is no escript, a part of Erlang/OTP, in PATH or at #{escript}")

    case System.cmd(escript, [@script, Mix.Project.app_path()], into: IO.stream()) do
      {_output, 0} -> {:noop, []}
      {_output, _status} -> {:error, []}
    end
  end
end
