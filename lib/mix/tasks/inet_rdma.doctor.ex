defmodule Mix.Tasks.InetRdma.Doctor do
  @shortdoc "Tells whether a cluster over RDMA could run on this machine"
  @moduledoc """
  Tells what this machine offers, what a node would use here, and what stands in its way, each with its fix.

      mix inet_rdma.doctor [--json]

  The exit status is 0 if a cluster could run (under the option `fabric`, if only on this host), else 1. Options count
  as they do for a node: from the application's environment, and from the command line of the VM:

      elixir --erl "-inet_rdma fabric verbs" -S mix inet_rdma.doctor

  Without Mix: `erl -noshell -eval 'inet_rdma_doctor:main()' [-json]`.

  ## Options

    * `--json` - one JSON object instead of the table; `t::inet_rdma_doctor.report/0` describes it
  """
  use Mix.Task

  # Builds the library, and sets the application's environment.
  @requirements ["app.config"]

  @impl Mix.Task
  def run(args) do
    {options, []} = OptionParser.parse!(args, strict: [json: :boolean])
    report = InetRdma.doctor()

    if options[:json],
      do: IO.puts(:inet_rdma_doctor.to_json(report)),
      else: IO.write(:inet_rdma_doctor.format(report))

    unless report.can_run, do: exit({:shutdown, 1})
  end
end
