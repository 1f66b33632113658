defmodule InetRdma.PagesTest do
  # The recipes of docs/QUICKSTARTS.md and docs/DEPLOY.md, run from the pages.
  use ExUnit.Case, async: true

  alias InetRdma.Test.{Archive, Os, Page}

  @quick "docs/QUICKSTARTS.md"
  @deploy "docs/DEPLOY.md"

  # Each piece of code by its first words, and the reason if no test of this module runs it.
  @recipes [
    {@quick, "$ mix compile", :run},
    {@quick, "$ elixir --erl \"-pa _build/dev/lib/inet_rdma/ebin -proto_dist inet_rdma\" --sname a", :run},
    {@quick, "$ elixir --erl \"-pa _build/dev/lib/inet_rdma/ebin -proto_dist inet_rdma\" --sname b", :run},
    {@quick, "tar -xzf inet_rdma-", :run},
    {@quick, "-pa /opt/inet_rdma/ebin -proto_dist inet_rdma", "the flags of the recipes after it"},
    {@quick, "inet_rdma:i().", :run},
    {@quick, "SERVER_ADDITIONAL_ERL_ARGS=", "make test-rabbitmq runs it"},
    {@quick, "# rabbitmqctl eval", "make test-rabbitmq runs it"},
    {@quick, "install -d -o rabbitmq", "make test-rabbitmq runs it"},
    {@quick, "erl -pa /opt/inet_rdma/ebin -proto_dist inet_rdma -sname a", :run},
    {@quick, "erl -pa /opt/inet_rdma/ebin -proto_dist inet_rdma -sname b", :run},
    {@quick, "# mix.exs", "it needs libcluster of Hex"},
    {@quick, "# config/config.exs", "it needs libcluster of Hex"},
    {@quick, "mix compile\nelixir", "it needs Phoenix of Hex"},
    {@quick, "iex --erl", :run},
    {@quick, "1> Args =", :run},
    {@quick, "args = [", :run},
    {@quick, "ct_run", :run},
    {@quick, "ip netns add pod", :run},
    {@deploy, "{:inet_rdma, path:", :run},
    {@deploy, "mix compile\nelixir", :run},
    {@deploy, "{deps, [inet_rdma]}.", :run},
    {@deploy, "rebar3 compile", :run},
    {@deploy, "{overlay, [", :run},
    {@deploy, "   1> [{N, F, W} ||", :run},
    {@deploy, "ulimit -l unlimited", "it needs the right to raise the limit, and an RDMA device"},
    {@deploy, "  mkdir /sys/kernel/config", "it needs an RDMA device"},
    {@deploy, "openssl req -x509 -newkey", :run},
    {@deploy, "openssl req -x509 -CA", :run},
    {@deploy, "cat >tls.conf", :run},
    {@deploy, "flags=", :run},
    {@deploy, "erl $flags -sname a", :run},
    {@deploy, "erl -proto_dist inet_rdma -inet_rdma shm_directory", "a part of a command"},
    {@deploy, "ip mptcp limits set subflow 4", "rails_SUITE runs such commands between hosts of its own"},
    {@deploy, "ip mptcp limits set subflow 3", "rails_SUITE runs such commands between hosts of its own"},
    {@deploy, "modprobe rdma_rxe", "it changes the kernel; test/vm has such devices"},
    {@deploy, "modprobe siw", "it changes the kernel; test/vm has such devices"}
  ]

  test "each recipe is run from its page, or says here why not" do
    for {page, pieces} <- [{@quick, Page.pieces(@quick)}, {@deploy, Page.pieces(@deploy)}], piece <- pieces do
      case for({^page, words, how} <- @recipes, String.starts_with?(piece, words), do: {words, how}) do
        [{_words, :run}] -> :ok
        [{words, reason}] -> IO.puts("#{page}: not run: #{inspect(words)}: #{reason}")
        found -> flunk("#{page}: #{length(found)} rows in #{inspect(__MODULE__)} for\n#{piece}")
      end
    end

    # Each row has its piece, and each that is run is named a second time, by its test.
    for {page, words, _how} <- @recipes, do: Page.piece!(page, words)
    source = File.read!(__ENV__.file)
    for {_page, words, :run} <- @recipes, do: assert(length(String.split(source, inspect(words))) > 2, words)
  end

  @tag timeout: 900_000
  test "an empty Mix project has a link that moves" do
    dir = Os.scratch_dir()
    File.ln_s!(Os.root(), Path.join(dir, "inet_rdma"))
    options = [cd: Path.join(dir, "app"), env: Page.epmd!()]
    Os.run!("mix", ["new", "app"], cd: dir)
    mix_exs = Path.join(dir, "app/mix.exs")
    dependency = Page.piece!(@deploy, "{:inet_rdma, path:")
    File.write!(mix_exs, String.replace(File.read!(mix_exs), ~r/defp deps do\s+\[/, "\\0#{dependency}"))

    [{compile, said}] = prompted("$ mix compile")
    output = Page.run!(compile, options)
    for line <- ["==> inet_rdma", "Generated app app"], do: assert(line in said and output =~ line)

    [{first, []}] = prompted("$ elixir --erl \"-pa _build/dev/lib/inet_rdma/ebin -proto_dist inet_rdma\" --sname a")
    Page.start!(first, options)

    [{second, [":pong" | _]}] =
      prompted("$ elixir --erl \"-pa _build/dev/lib/inet_rdma/ebin -proto_dist inet_rdma\" --sname b")

    output = until_connected(second, options)
    assert output =~ ~r/^a@#{Page.host()} +shm +up .* both nodes settled on it: shared memory of this host$/m

    # DEPLOY has the first command again, with the compilation before it.
    [compile, node] = String.split(Page.piece!(@deploy, "mix compile\nelixir"), "\n")
    assert {compile, node <> " &"} == {"mix compile", first}
  end

  defp prompted(words), do: Page.prompted(Page.piece!(@quick, words))

  # The first node says nothing when it is up.
  defp until_connected(command, options, left \\ 20) do
    output = Page.run!(command, options)
    if output =~ ~r/^:pong$/m or left == 0, do: output, else: until_connected(command, options, left - 1)
  end

  @tag timeout: 900_000
  test "a rebar3 project runs, and its releases of either mode have the tools" do
    dir = Os.scratch_dir()
    project = Path.join(dir, "rebar_cluster")
    File.cp_r!(Path.join(Os.root(), "test/projects/rebar_cluster"), project)
    File.mkdir_p!(Path.join(project, "_checkouts"))
    File.ln_s!(Os.root(), Path.join(project, "_checkouts/inet_rdma"))
    options = [cd: project, env: Page.epmd!()]

    File.write!(Path.join(project, "rebar.config"), """
    #{Page.piece!(@deploy, "{deps, [inet_rdma]}.")}
    {relx, [{release, {rebar_cluster, "1"}, [rebar_cluster, inet_rdma]}, {mode, dev},
            #{Page.piece!(@deploy, "{overlay, [")}]}.
    {profiles, [{prod, [{relx, [{mode, prod}]}]}]}.
    """)

    [compile, node] = String.split(Page.piece!(@deploy, "rebar3 compile"), "\n")
    Page.run!(compile, options)
    port = Page.start!(node, options)
    Page.type!(port, "{carrier, inet_rdma_options:node()}.", ~r/{carrier,/)

    # Neither empties files of the build, as a copy onto itself does.
    for {profile, command} <- [{"default", "rebar3 release"}, {"prod", "rebar3 as prod release"}] do
      Page.run!(command, options)
      release = Path.join(project, "_build/#{profile}/rel/rebar_cluster")
      [boot] = Path.wildcard(Path.join(release, "releases/1/start.boot"))
      doctor = "io:format(\"~p~n\", [{inet_rdma:load_tools(), maps:get(starts, inet_rdma_doctor:report())}]), halt()."
      erl = List.first(Path.wildcard(Path.join(release, "erts-*/bin/erl"))) || "erl"
      args = ["-noinput", "-boot", Path.rootname(boot), "-boot_var", "RELEASE_DIR", release, "-eval", doctor]
      assert Os.run!(erl, args, env: [{"ERL_LIBS", Path.join(release, "lib")} | options[:env]]) =~ "{ok,true}"
    end

    beams = Path.wildcard(Path.join(project, "_build/*/**/inet_rdma_tools/ebin/*"))
    assert length(beams) >= 4 * 26
    assert [] == for(beam <- beams, File.stat!(beam).size == 0, do: beam)
  end

  # Evaluates an expression in the shell of an Erlang node until it is true.
  defp type_until_true!(port, expression),
    do: Page.type!(port, "(fun F() -> #{expression} orelse begin timer:sleep(100), F() end end)().", ~r/true/)

  # The node has one link.
  defp has_link!(port), do: Page.type!(port, "[F || \#{fabric := F} <- inet_rdma:info()].", ~r/\[(tcp|shm)\]/)

  describe "with the library on a host" do
    # To pack the archive.
    @describetag :cargo

    setup do
      dir = Os.scratch_dir()
      opt = Path.join(dir, "opt/inet_rdma")
      File.mkdir_p!(Path.dirname(opt))
      File.cp!(Archive.in_dir(Archive.packed()), Path.join(dir, Archive.name()))
      # The page's archive is for x86-64 and glibc.
      name = Path.basename(Archive.name(), ".tar.gz")

      piece = fn page, words ->
        Page.piece!(page, words)
        |> String.replace("/opt/inet_rdma", opt)
        |> String.replace(~r/inet_rdma-[\d.]+-x86_64-linux-gnu/, name)
      end

      options = [cd: dir, env: Page.epmd!()]
      Page.run!(piece.(@quick, "tar -xzf inet_rdma-"), options)
      %{dir: dir, opt: opt, piece: piece, options: options}
    end

    test "Mnesia runs in two nodes, of which one may be another's", %{piece: piece, options: options} do
      [command | expressions] =
        String.split(piece.(@quick, "erl -pa /opt/inet_rdma/ebin -proto_dist inet_rdma -sname a"), "\n")

      a = Page.start!(command, options)
      for {text, []} <- Page.prompted(Enum.join(expressions, "\n")), do: Page.type!(a, text, ~r/{atomic,ok}/)

      [command | rest] =
        String.split(piece.(@quick, "erl -pa /opt/inet_rdma/ebin -proto_dist inet_rdma -sname b"), "\n")

      b = Page.start!(command, options)

      for {text, [result]} <- Page.prompted(Enum.join(rest, "\n")),
          do: Page.type!(b, text, Regex.compile!(Regex.escape(result)))

      assert Page.type!(b, piece.(@quick, "inet_rdma:i()."), ~r/^a@\S+ +(tcp|shm) +up /)

      # A cluster is changed over node by node: one of inet_tcp.
      ping = "pong = net_adm:ping('a@#{Page.host()}')."
      Page.start!("erl -proto_dist inet_tcp -noinput -sname c -eval \"#{ping}\"", options)
      type_until_true!(a, "nodes() -- ['b@#{Page.host()}'] =/= []")
      [{links, _row}] = Page.prompted(String.trim_leading(piece.(@deploy, "   1> [{N, F, W} ||")))
      Page.type!(a, links, ~r/{'?c@.*tcp/)
      Page.type!(a, links, ~r/makes no offer: it does not run inet_rdma/)
    end

    test "peers run in Erlang and Elixir, and nodes of Common Test and of Livebook", context do
      %{dir: dir, opt: opt, piece: piece, options: options} = context
      flags = piece.(@quick, "-pa /opt/inet_rdma/ebin -proto_dist inet_rdma")
      erl = Page.start!("erl #{flags} -sname first", options)

      for {{text, []}, awaited} <-
            Enum.zip(Page.prompted(piece.(@quick, "1> Args =")), [~r/"-proto_dist"/, ~r/{ok,/, ~r/peer-\d+-\d+@/]),
          do: Page.type!(erl, text, awaited)

      has_link!(erl)

      script = Path.join(dir, "peer.exs")
      File.write!(script, "IO.inspect({:sum, (" <> piece.(@quick, "args = [") <> ")})")
      assert Page.run!("elixir --erl '#{flags}' --sname second #{script}", options) =~ "{:sum, 6}"

      iex = Page.start!(piece.(@quick, "iex --erl"), options)

      Page.type!(
        iex,
        "IO.inspect({:carrier, :init.get_argument(:proto_dist), node()})",
        ~r/{:carrier, .*inet_rdma.*worker@/
      )

      File.mkdir_p!(Path.join(dir, "test"))

      File.write!(Path.join(dir, "test/x_SUITE.erl"), """
      -module(x_SUITE).
      -export([all/0, peer_is_carried/1]).
      all() -> [peer_is_carried].
      peer_is_carried(_Config) ->
          Args = ["-pa", filename:dirname(code:which(inet_rdma)), "-proto_dist", "inet_rdma"],
          {ok, _, Node} = peer:start_link(\#{name => peer:random_name(), args => Args}),
          \#{node := Node} = inet_rdma:info(Node).
      """)

      assert Page.run!(piece.(@quick, "ct_run"), options) =~ "1 ok, 0 failed"
      assert Os.run!(Path.join(opt, "demo"), [], env: options[:env]) =~ " shm "
    end

    test "nodes in the namespaces of a pod have a link", %{piece: piece, options: options} do
      # A name of its own, as other runs have their pods.
      pod = "pod_#{System.pid()}"
      [add, node] = piece.(@quick, "ip netns add pod") |> String.replace("pod", pod) |> String.split("\n", parts: 2)

      case System.cmd("sh", ["-ec", add], stderr_to_stdout: true) do
        {_said, 0} ->
          on_exit(fn -> System.cmd("ip", ["netns", "del", pod]) end)
          a = Page.start!(node, options)
          Page.type!(a, "{node, node()}.", ~r/{node,'a@127.0.0.1'}/)
          # A second container of the pod.
          b = Page.start!(String.replace(node, "a@127.0.0.1", "b@127.0.0.1"), options)
          Page.type!(b, "net_adm:ping('a@127.0.0.1').", ~r/pong/)
          has_link!(b)

        {said, _status} ->
          IO.puts("skipped: no network namespace can be made here: #{said}")
      end
    end

    test "nodes have links inside TLS, from nothing", %{opt: opt, piece: piece, options: options} do
      ssl = "erl -noinput -eval 'io:put_chars(filename:join(code:lib_dir(ssl), \"ebin\")), halt().'"
      assert File.read!(Path.join(Os.root(), @deploy)) |> String.replace(~r/\s+/, " ") =~ ssl
      ssl = Page.run!(ssl, options)
      flags = piece.(@deploy, "flags=") |> String.replace("EBIN", opt <> "/ebin") |> String.replace("SSL", ssl)

      made =
        for words <- ["openssl req -x509 -newkey", "openssl req -x509 -CA", "cat >tls.conf"], do: piece.(@deploy, words)

      Page.run!(Enum.join(made, "\n"), options)
      [first, in_words] = String.split(piece.(@deploy, "erl $flags -sname a"), ~r/ +# /)
      [_, second, ping] = Regex.run(~r/: (erl \$flags -sname b), then (net_adm:ping\(.*\))/, in_words)
      start = fn command -> Os.start!("sh", ["-ec", flags <> "; exec " <> command], options) end
      start.(first)
      b = start.(second)
      quoted = String.replace(ping, ~r/a@[\w-]+/, "'\\0'")
      type_until_true!(b, "#{quoted} =:= pong")
      Page.type!(b, "{ok, \#{security := S}} = inet_rdma_options:node(), {S, inet_rdma:info()}.", ~r/{tls,/)
    end
  end
end
