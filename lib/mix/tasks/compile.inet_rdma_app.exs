# A script, not a module of the application: see compile.inet_rdma_native.exs.
defmodule Mix.Tasks.Compile.InetRdmaApp do
  @shortdoc "Writes inet_rdma.app from src/inet_rdma.app.src"
  @moduledoc """
  Writes `ebin/inet_rdma.app`: the keys of `src/inet_rdma.app.src`, and the modules that Mix compiled.

  This task replaces Mix's `compile.app`, which adds `elixir` to `applications` unless the project sets
  `language: :erlang`. An Erlang system without Elixir loads the same file: RabbitMQ, for one, cannot order its
  applications if one of them names an application that is not there. Only Elixir applications call the Elixir
  modules, and those applications list `elixir` themselves.

  `language: :erlang` is for projects without Elixir code: with it Elixir 1.14 warns of each call from our Elixir
  modules to Elixir's own, and later versions write a key `optional_applications` that rebar3 does not write.
  """
  use Mix.Task.Compiler

  @source Path.expand("../../../src/inet_rdma.app.src", __DIR__)

  @impl Mix.Task.Compiler
  def run(_args) do
    ebin = Mix.Project.compile_path()
    target = Path.join(ebin, "inet_rdma.app")
    {:ok, [{:application, :inet_rdma, keys}]} = :file.consult(@source)
    description = {:application, :inet_rdma, Keyword.replace!(keys, :modules, modules(ebin))}

    # An unchanged file keeps its modification time, from which Mix tells whether dependents are stale.
    if :file.consult(target) == {:ok, [description]} do
      {:noop, []}
    else
      File.write!(target, IO.chardata_to_string(:io_lib.format("~tp.~n", [description])))
      Mix.shell().info("Generated inet_rdma app")
      {:ok, []}
    end
  end

  defp modules(ebin) do
    beams = for file <- File.ls!(ebin), Path.extname(file) == ".beam", do: Path.rootname(file)
    beams |> Enum.map(&String.to_atom/1) |> Enum.sort()
  end
end
