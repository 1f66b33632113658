defmodule Mix.Tasks.InetRdma.Flight do
  @shortdoc "Prints what a flight recorder has kept of a node's links"
  @moduledoc """
  Prints what the flight recorder of a node has kept of its links, also of a node that is dead.

      mix inet_rdma.flight FILE... [--link NODE] [--since TIME] [--until TIME] [--json]

  Of several files the events are on one time line: those of one machine by its monotonic clock, else by the machines'
  clocks. The page `docs/FLIGHT.md` says where the files are, what the events are, and how to find a cause.

  ## Options

    * `--link` - events of the links to this node alone; may be given more than once
    * `--since`, `--until` - not before, and not after this time, as `2026-11-24T01:40:00Z`; without an offset in UTC
    * `--json` - one JSON object instead of lines; `t::inet_rdma_flight.event/0` describes the events
  """
  use Mix.Task

  # Builds the library.
  @requirements ["app.config"]

  @impl Mix.Task
  def run(args) do
    :ok = InetRdma.Tools.load!()

    case :inet_rdma_flight.run(Enum.map(args, &String.to_charlist/1)) do
      {:ok, text} -> IO.write(text)
      {:error, why} -> Mix.raise(IO.iodata_to_binary(why))
    end
  end
end
