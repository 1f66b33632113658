defmodule Mix.Tasks.InetRdma.Certify do
  @shortdoc "Tests this host's links, or those to another host, and writes a report: PASS or FAIL"
  @moduledoc """
  Runs the doctor, the contract suite, checked traffic under cuts, a small cluster under chaos, and speed beside
  inet_tcp, and writes one report with PASS or FAIL, as HTML and as JSON.

      mix inet_rdma.certify                  # at most 15 minutes
      mix inet_rdma.certify --quick          # about 3
      mix inet_rdma.certify --peer HOST      # links to another host

  It takes the options of the script `certify`: `mix inet_rdma.certify --help` lists them, and
  [docs/HARDWARE.md](HARDWARE.html) says what each check does. The exit status is 0 for PASS, 1 for FAIL, 2 for wrong
  options. The nodes are `erl` processes of their own; without Mix:
  `erl -noshell -pa EBIN -eval 'inet_rdma_certify:main()' -extra --quick`.
  """
  use Mix.Task

  # Builds the library, and sets the application's environment.
  @requirements ["app.config"]

  @impl Mix.Task
  def run(args) do
    status = args |> Enum.map(&String.to_charlist/1) |> :inet_rdma_certify.main()
    if status != 0, do: exit({:shutdown, status})
  end
end
