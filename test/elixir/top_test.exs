defmodule InetRdma.TopTest do
  use ExUnit.Case, async: true

  alias InetRdma.Test.Os

  @ebin Path.dirname(to_string(:code.which(:inet_rdma)))
  @cookie "top_cookie"

  # A node, and a peer over shared memory that sends it 100 KB at a time without end, and one over TCP that is silent.
  setup_all do
    [watched, busy, plain] = for word <- ~w(top_watched top_busy top_plain), do: Os.node_name(word)
    ready = "io:format(\"ready~n\")."
    connect = "pong = net_adm:ping('#{watched}'), #{ready}"

    send_on =
      "F = fun F() -> 100000 = erpc:call('#{watched}', erlang, byte_size, [<<0:800000>>]), F() end, " <>
        "spawn(fun() -> F() end), #{ready}"

    start(watched, "inet_rdma", ready)
    start(busy, "inet_rdma", "pong = net_adm:ping('#{watched}'), #{send_on}")
    start(plain, "inet_tcp", connect)
    %{watched: watched, busy: busy, plain: plain, cookie: cookie_file(@cookie)}
  end

  defp cookie_file(cookie) do
    file = Path.join(Os.scratch_dir(), "COOKIE")
    File.write!(file, cookie <> "\n")
    file
  end

  defp start(name, carrier, expression) do
    args = ["-pa", @ebin | Os.node_args(name, carrier, @cookie)]
    Os.start!("erl", args ++ ["-connect_all", "false", "-eval", expression]) |> Os.await_line!(~r/^ready$/)
  end

  defp top(args, options \\ []), do: Os.run!("mix", ["inet_rdma.top" | args], [env: [{"MIX_ENV", "test"}]] ++ options)

  @tag timeout: 600_000
  test "the links of a node are printed with their rates, busiest first", nodes do
    output = top([nodes.watched, "--cookie-file", nodes.cookie, "--interval", "0.5", "--count", "2"])
    lines = String.split(output, "\n", trim: true)
    titles = Enum.filter(lines, &(&1 =~ "#{nodes.watched}  links: 1 shm, 1 tcp  received "))
    assert length(titles) == 2
    [busy, plain] = lines |> Enum.drop_while(&(not (&1 =~ ~r/^Node +Fabric/))) |> Enum.slice(1, 2)
    assert busy =~ ~r"^#{nodes.busy} +shm +up +[\d.]+ (K|M|G)B +\d.* 0% .*both nodes settled on it"
    assert plain =~ ~r"^#{nodes.plain} +tcp +up .* - .*the peer makes no offer"
    # Nothing of the task's own connection, and nothing for a terminal.
    refute output =~ "\e["
    assert length(lines) - length(titles) == 2 * 3 + Enum.count(lines, &(&1 =~ ~r/Finished|Compil|Generated|Blocking/))
  end

  @tag timeout: 600_000
  test "the senders that fill a link are printed on request", nodes do
    output = top([nodes.watched, "--cookie-file", nodes.cookie, "--interval", "0.5", "--senders"])
    assert output =~ ~r/^Node +Direction +Share +Rate +Operation +From +To$/m
    assert output =~ ~r/^#{nodes.busy} +received +\d+% +\d+ [KM]B\/s +spawn_request +<[\d.]+> +none$/m
  end

  test "a link that is suspected, has no path or goes over another node says so" do
    link = %{node: :b@host, fabric: :tcp, state: :up, why: "it is far", bytes_sent: 0, bytes_received: 0}
    link = Map.merge(link, %{packets_sent: 0, packets_received: 0, suspended: false, path_state: :carried})
    detour = %{detoured: true, via: :c@host}

    changes = [
      %{},
      %{path_state: :suspected},
      %{path_state: :suspended, suspended: true},
      detour,
      %{detour | via: :undefined}
    ]

    shown =
      for change <- changes do
        sample = {0, [Map.merge(link, change)]}

        [_title, header, row] =
          InetRdma.Top.table(:a@host, sample, sample) |> IO.iodata_to_binary() |> String.split("\n", trim: true)

        assert header =~ ~r/ Moves +Via +Why$/
        [[_, state, via]] = Regex.scan(~r/^b@host +tcp +(\w+) .* (\S+) +it is far$/, row)
        {state, via}
      end

    assert shown == [{"up", "-"}, {"suspected", "-"}, {"suspended", "-"}, {"up", "c@host"}, {"up", "?"}]
  end

  @tag timeout: 600_000
  test "in a terminal the table is drawn again and again until q is typed", nodes do
    command = "mix inet_rdma.top #{nodes.watched} --cookie-file #{nodes.cookie} --interval 0.2"
    port = Os.start!("script", ["-qec", command, "/dev/null"], env: [{"MIX_ENV", "test"}, {"TERM", "xterm"}])
    first = Os.await_line!(port, ~r/q and Enter: end/)
    assert Enum.any?(first, &(&1 =~ "\e[2J\e[H#{nodes.watched}  links: 1 shm, 1 tcp"))
    # Without a sample before it the first table has no rates.
    refute Enum.any?(first, &(&1 =~ "B/s, sent"))
    assert Os.await_line!(port, ~r"\e\[2J\e\[H#{nodes.watched} .*received .*B/s, sent")
    Port.command(port, "s\n")
    assert Os.await_line!(port, ~r/^Node +Direction +Share/)
    Port.command(port, "q\n")
    assert {0, _} = Os.await_exit!(port)
  end

  @tag timeout: 600_000
  test "without a name the task shows the node that it runs in", nodes do
    carrier = "-pa #{@ebin} -proto_dist inet_rdma -inet_rdma move eager -setcookie #{@cookie}"
    expression = "true = Node.connect(:\"#{nodes.watched}\")"
    args = ["--erl", carrier, "--sname", name = Os.node_name("top_own"), "-S", "mix", "do", "run", "-e", expression]
    output = Os.run!("elixir", args ++ ["+", "inet_rdma.top", "--interval", "0.2"], env: [{"MIX_ENV", "test"}])
    assert output =~ "#{name}  links: "
    assert output =~ ~r"#{nodes.watched} +shm +up "
  end

  @tag timeout: 600_000
  test "what cannot be shown is said in words, with status 1", nodes do
    refused = fn args ->
      {output, 1} = System.cmd("mix", ["inet_rdma.top" | args], stderr_to_stdout: true, env: [{"MIX_ENV", "test"}])
      output
    end

    assert refused.([]) =~ "this node is not distributed"

    assert refused.([nodes.watched, "--cookie-file", cookie_file("another")]) =~
             "cannot be reached: is it running, and is its cookie"

    assert refused.([nodes.watched, "--cookie-file", "/none"]) =~ "--cookie-file /none: no such file or directory"
    assert refused.(["#{Os.node_name("top_nobody")}"]) =~ "cannot be reached"
    assert refused.([nodes.watched, nodes.plain]) =~ "one node, please"
    assert refused.([nodes.watched, "--interval", "0.0"]) =~ "must be more than 0"
  end

  @tag timeout: 600_000
  test "a node without the library has no links to show", nodes do
    without = Os.node_name("top_without")
    args = ["-noinput", "-sname", without, "-setcookie", @cookie, "-eval", "io:format(\"ready~n\")."]
    Os.start!("erl", args) |> Os.await_line!(~r/^ready$/)
    {output, 1} = System.cmd("mix", ["inet_rdma.top", without, "--cookie-file", nodes.cookie], stderr_to_stdout: true)
    assert output =~ "#{without} has no inet_rdma in its code path"
  end
end
