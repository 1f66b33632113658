defmodule Mix.Tasks.InetRdma.Top do
  @shortdoc "Shows the links of a node and their rates, live"
  @moduledoc """
  Shows the links of a node: what carries each, its rates, the share of its bytes that went direct, what is queued, how
  often it lost its connection, resumed over another one and moved, over which node it goes if not directly, why it is
  carried as it is. Busiest first. A link that no path carries at the moment has the state `suspended`, one whose path
  does not answer the state `suspected`.

      mix inet_rdma.top [NODE] [--cookie-file FILE] [--interval SECONDS] [--count TABLES] [--senders]

  `NODE` is a running node, with inet_rdma in its code path; without a host, one of this host. The task connects to it
  over TCP as a hidden node without a name of its own, as a remote shell does, and leaves it as it is. Without `NODE` it
  shows the node that it runs in:

      elixir --erl "-pa EBIN -proto_dist inet_rdma" --sname a -S mix do app.start + inet_rdma.top

  In a terminal the table is drawn again and again until q and Enter are typed; s and Enter show or hide
  the senders. Elsewhere one table is printed.

  ## Options

    * `--cookie-file` - a file with the node's cookie, such as a release's `releases/COOKIE`; default: this user's
      `~/.erlang.cookie`. A cookie on a command line could be read by every user of the host
    * `--interval` - seconds between two readings of the links, and so the time that rates are of; default 2
    * `--senders` - below the links, who fills them: the three heaviest senders with their targets, of the last ten
      seconds, in each direction of each link
    * `--count` - end after so many tables; default: none in a terminal, elsewhere 1
  """
  use Mix.Task

  alias InetRdma.Top

  # Builds the library.
  @requirements ["app.config"]
  @switches [cookie_file: :string, interval: :float, count: :integer, senders: :boolean]

  @impl Mix.Task
  def run(args) do
    {options, names} = OptionParser.parse!(args, strict: @switches)
    interval_ms = round(1000 * Keyword.get(options, :interval, 2.0))
    live = IO.ANSI.enabled?()
    count = Keyword.get(options, :count, if(live, do: :infinity, else: 1))

    if interval_ms < 1 or (count != :infinity and count < 1),
      do: Mix.raise("--interval and --count must be more than 0")

    node = connect(names, cookie(options[:cookie_file]))
    first = Top.sample!(node)
    shows = Keyword.get(options, :senders, false)
    _ = if live, do: start_live(node, first, shows)
    watch(node, first, %{interval_ms: interval_ms, live: live, senders: shows}, count)
  end

  defp cookie(nil), do: nil

  defp cookie(file) do
    case File.read(file) do
      {:ok, text} -> text |> String.trim() |> String.to_atom()
      {:error, reason} -> Mix.raise("--cookie-file #{file}: #{:file.format_error(reason)}")
    end
  end

  defp connect([], nil) do
    unless Node.alive?(), do: Mix.raise("this node is not distributed, so it has no links: mix inet_rdma.top NODE")
    node()
  end

  defp connect([], _cookie), do: Mix.raise("--cookie-file goes with the name of a node")

  defp connect([name], cookie) do
    node = full_name(name)
    domain = if name |> String.split("@") |> List.last() |> String.contains?("."), do: :longnames, else: :shortnames
    unless Node.alive?(), do: start_distribution(domain)
    if cookie, do: Node.set_cookie(node, cookie)

    unless Node.connect(node) do
      Mix.raise(
        "#{node} cannot be reached: is it running, and is its cookie that of --cookie-file or ~/.erlang.cookie?"
      )
    end

    node
  end

  defp connect(_names, _cookie), do: Mix.raise("one node, please: mix inet_rdma.top [NODE]")

  defp full_name(name) do
    {:ok, host} = :inet.gethostname()
    String.to_atom(if String.contains?(name, "@"), do: name, else: "#{name}@#{host}")
  end

  # Without a name the node needs no EPMD, listens nowhere, is hidden, and is named by the node that it connects to.
  defp start_distribution(domain) do
    case :net_kernel.start(:undefined, %{name_domain: domain}) do
      {:ok, _pid} -> :ok
      {:error, reason} -> Mix.raise("the Erlang distribution does not start: #{inspect(reason)}")
    end
  end

  # The links at once, without rates; then a reader of the terminal, so that the task can be ended.
  defp start_live(node, first, senders) do
    draw(table(node, first, first, senders))
    task = self()
    spawn_link(fn -> read_until_q(task) end)
  end

  defp read_until_q(task) do
    case IO.gets("") do
      line when is_binary(line) -> handle_key(String.trim(line), task)
      _end_of_input -> :ok
    end
  end

  defp handle_key("q", task), do: send(task, :quit)

  defp handle_key(key, task) do
    if key == "s", do: send(task, :senders)
    read_until_q(task)
  end

  defp watch(_node, _before, _shown, 0), do: :ok

  defp watch(node, before, %{interval_ms: interval_ms, live: live, senders: senders} = shown, count) do
    receive do
      :quit -> :ok
      :senders -> watch(node, before, %{shown | senders: not senders}, count)
    after
      interval_ms ->
        now = Top.sample!(node)
        table = table(node, before, now, senders)
        if live, do: draw(table), else: IO.puts(table)
        watch(node, now, shown, if(count == :infinity, do: count, else: count - 1))
    end
  end

  defp table(node, before, now, senders),
    do: [Top.table(node, before, now), if(senders, do: Top.senders!(node), else: [])]

  # Lines are cut, as one that the terminal wraps moves those below it.
  defp draw(table) do
    width = with {:error, _} <- :io.columns(), do: {:ok, 160}
    lines = table |> IO.chardata_to_string() |> String.split("\n")
    cut = Enum.map(lines, &String.slice(&1, 0, elem(width, 1)))

    IO.write([
      IO.ANSI.clear(),
      IO.ANSI.home(),
      Enum.intersperse(cut, "\n"),
      "\nq and Enter: end; s and Enter: senders\n"
    ])
  end
end
