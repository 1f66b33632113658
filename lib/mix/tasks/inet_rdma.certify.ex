defmodule Mix.Tasks.InetRdma.Certify do
  @shortdoc "Tests this host's links, or those to another host, and writes a report: PASS or FAIL"
  @moduledoc """
  Runs the doctor, the contract suite, checked traffic under cuts, a small cluster under chaos, and speed beside
  inet_tcp, and writes one report with PASS or FAIL, as HTML and as JSON.

      mix inet_rdma.certify                  # at most 15 minutes
      mix inet_rdma.certify --quick          # about 3
      mix inet_rdma.certify --peer HOST      # links to another host

  It takes the options of the script `certify`: `mix inet_rdma.certify --help` lists them. The exit status is 0 for
  PASS, 1 for FAIL, 2 for wrong options. docs/HARDWARE.md says how to test two hosts, and how to send a report.

  The nodes are `erl` processes of their own, which end with the check.

  ## Checks

  A path is how links are carried: `shm`, `tcp`, and `verbs NAME` for each RDMA device with an IPv4 address.

    * `doctor`, of each host: devices, rights, limits, libraries. A problem that it finds is a FAIL, with its fix.
    * `sizes`, of each path: messages of 1 B to 64 MiB there and back, from both nodes. FAIL if the link does not take
      the path, or a message is lost or damaged; the first such size is named.
    * `speed`, of each path: rpc of 100 processes, round trip, messages of 1 KiB and of 1 MiB, over the link and over
      inet_tcp between the same addresses, in turn in each round. FAIL if the median of the rounds' ratios is below
      0.5 (over a software device 0.05), or what `--least-speed` says.
    * `survival`, of each path: the link's TCP connection is cut about each second, under calls, numbered messages,
      links and monitors. FAIL if anything is lost, doubled, reordered, damaged or failed, and at a nodedown.
    * `soak`, of each path: three nodes under that traffic, with cuts, disconnects, a node killed and started again, one
      stopped for 2 s. FAIL if the traffic of the two nodes that live is disturbed, all is not in order again within
      30 s, or a node keeps more descriptors, threads, ports, processes or memory.
    * `profile`, of each device: its answers, and what its self-test has found, beside what the sources of its provider
      say (docs/HARDWARE.md). Each difference is in the evidence, and no reason to fail. SKIPPED for a driver without a
      profile: the evidence is a draft of one.
    * `reference`, of each device: `ib_write_lat` and `ib_write_bw` of perftest, which show what the device does
      without inet_rdma. SKIPPED if they are not installed.
    * `contract`, of each path, with 15 minutes or more: what every fabric must do, without Erlang. SKIPPED without its
      program, which archives and `make certify` have.

  Each check has a bound, and one that is cut off is a FAIL with what was seen until then. The whole is PASS only if
  nothing has failed, and doctor, sizes, speed, survival and soak have each passed. `--checks sizes,profile` runs these
  alone, for the report of a device: its verdict is FAIL, as it is no certificate.
  """
  use Mix.Task

  # Builds the library, and sets the application's environment.
  @requirements ["app.config"]

  @impl Mix.Task
  def run(args) do
    :ok = InetRdma.Tools.load!()
    status = args |> Enum.map(&String.to_charlist/1) |> :inet_rdma_certify.main()
    if status != 0, do: exit({:shutdown, status})
  end
end
