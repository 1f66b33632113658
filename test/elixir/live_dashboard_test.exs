defmodule InetRdma.LiveDashboardTest do
  # The rows, from real nodes; and the page itself where Phoenix LiveDashboard is on the path (ERL_LIBS).
  use ExUnit.Case, async: true

  alias InetRdma.Test.Os

  @ebin Path.dirname(to_string(:code.which(:inet_rdma)))
  @order %{search: nil, sort_by: :node, sort_dir: :asc, limit: 50}

  # The test's own VM is not distributed: the rows are fetched within a node with two links.
  @tag timeout: 600_000
  test "the rows of the page are the links of a node, and what fills them: searched, sorted and limited" do
    [a, moved, plain] = for word <- ~w(ld_a ld_moved ld_plain), do: Os.node_name(word)
    for {name, carrier} <- [{moved, "inet_rdma"}, {plain, "inet_tcp"}], do: start(name, carrier)

    script = """
    inspect = fn what, label -> IO.inspect(what, label: label, width: :infinity) end
    for peer <- [:"#{moved}", :"#{plain}"], do: true = Node.connect(peer)
    order = #{inspect(@order)}
    fetch = fn change -> InetRdma.LiveDashboard.fetch(Map.merge(order, change), node()) end
    {rows, 2} = fetch.(%{})
    inspect.(for(row <- rows, do: {row.node, row.fabric, row.direct, row.via}), "all")
    inspect.(elem(fetch.(%{search: "no offer"}), 0) |> Enum.map(& &1.node), "searched")
    inspect.(elem(fetch.(%{sort_by: :fabric, sort_dir: :desc}), 0) |> Enum.map(& &1.fabric), "sorted")
    inspect.(elem(fetch.(%{limit: 1}), 0) |> length(), "limited")
    inspect.(InetRdma.LiveDashboard.fetch(order, :"#{plain}"), "without the library")

    Process.register(self(), :the_sender)
    for _ <- 1..20, do: send({:the_target, :"#{moved}"}, :binary.copy("x", 100_000))
    :pong = :net_adm.ping(:"#{moved}")
    order = %{order | sort_by: :rate, sort_dir: :desc}
    senders = fn change -> InetRdma.LiveDashboard.fetch_senders(Map.merge(order, change), node()) end
    {[heaviest | _], _} = senders.(%{})
    inspect.({heaviest.node, heaviest.direction, heaviest.operation, heaviest.from, heaviest.to}, "heaviest")
    inspect.({heaviest.percent > 90, heaviest.rate > 50_000}, "of the link")
    inspect.({elem(senders.(%{search: "the_target"}), 1), senders.(%{search: "nobody"})}, "senders searched")
    {received, _} = senders.(%{sort_by: :direction, sort_dir: :asc})
    inspect.(Enum.uniq(for row <- received, do: row.direction), "directions")
    inspect.(InetRdma.LiveDashboard.fetch_senders(order, :"#{plain}"), "senders without the library")
    """

    flags = "-proto_dist inet_rdma -inet_rdma move eager -setcookie live_dashboard -connect_all false"
    output = Os.run!("elixir", ["--erl", "-pa #{@ebin} " <> flags, "--sname", a, "-e", script])
    assert output =~ "all: " <> inspect([{moved, "shm", "0%", "-"}, {plain, "tcp", "-", "-"}])
    assert output =~ "searched: " <> inspect([plain])
    assert output =~ "sorted: " <> inspect(["tcp", "shm"])
    assert output =~ "limited: 1"
    assert output =~ "\nwithout the library: {[], 0}"
    assert output =~ ~r/heaviest: {"#{moved}", "sent", "reg_send", "<[\d.]+> \(the_sender\)", "the_target"}/
    assert output =~ "of the link: {true, true}"
    assert output =~ "senders searched: {1, {[], 0}}"
    assert output =~ ~s(directions: ["received", "sent"])
    assert output =~ "senders without the library: {[], 0}"
  end

  @page Code.ensure_loaded?(Phoenix.LiveDashboard.PageBuilder)
  @tag skip: if(@page, do: false, else: "Phoenix LiveDashboard is not on the path of the code")
  test "the page compiles and renders its columns" do
    [{page, _}] = Code.compile_string("defmodule InetRdma.LiveDashboardTest.Page do\n  use InetRdma.LiveDashboard\nend")

    assert page.menu_link(%{}, %{}) == {:ok, "Links"}
    assigns = %{page: struct(Phoenix.LiveDashboard.PageBuilder, node: node(), params: %{}), __changed__: nil}
    assert %{static: [_ | _]} = apply(page, :render, [assigns])
  end

  defp start(name, carrier) do
    args = Os.node_args(name, carrier, "live_dashboard") ++ ["-connect_all", "false"]
    path = if carrier == "inet_rdma", do: ["-pa", @ebin], else: []
    Os.start!("erl", path ++ args ++ ["-eval", "io:format(\"ready~n\")."]) |> Os.await_line!(~r/^ready$/)
  end
end
