defmodule Mix.Tasks.InetRdma.Doctor do
  @shortdoc "Tells whether links between nodes can leave TCP on this machine"
  @moduledoc """
  Tells what this machine offers, what carries the links of a node here, and what keeps them on TCP, each with its
  fix.

      mix inet_rdma.doctor [--json]

  The exit status is 0 if links can leave TCP (under the option `fabric`, if only within this host), else 1: they stay
  on TCP then, or the node does not start. Options count as they do for a node: from the application's environment,
  and from the command line of the VM:

      elixir --erl "-inet_rdma fabric verbs" -S mix inet_rdma.doctor

  ## Options

    * `--json` - one JSON object instead of the table; `t::inet_rdma_doctor.report/0` describes it
  """
  use Mix.Task

  # Builds the library, and sets the application's environment.
  @requirements ["app.config"]

  @impl Mix.Task
  def run(args) do
    :ok = InetRdma.Tools.load!()
    {options, []} = OptionParser.parse!(args, strict: [json: :boolean])
    report = :inet_rdma_doctor.report()

    if options[:json],
      do: IO.puts(:inet_rdma_doctor.to_json(report)),
      else: IO.write(:inet_rdma_doctor.format(report))

    unless report.leaves_tcp, do: exit({:shutdown, 1})
  end
end
