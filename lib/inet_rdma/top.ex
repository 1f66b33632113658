defmodule InetRdma.Top do
  @moduledoc false
  # The links of a node with their rates between two samples, for `mix inet_rdma.top`.

  # Milliseconds of this node's monotonic clock, and the maps of `:inet_rdma.info/0`.
  @type sample :: {integer(), [map()]}

  @timeout_ms 5_000
  @header ~w(Node Fabric State Recv/s Sent/s) ++
            ["Recv Packets/s", "Sent Packets/s"] ++ ~w(Direct Queued RTT Losses Resumes Moves Via Why)

  @doc "The links of `node` now, without the one to this node. If the node does not tell them, it raises `Mix.Error`."
  @spec sample!(node()) :: sample()
  def sample!(node) do
    infos = :erpc.call(node, :inet_rdma, :info, [], @timeout_ms)
    {System.monotonic_time(:millisecond), Enum.reject(infos, &(&1.node in [:undefined, node()]))}
  rescue
    error in ErlangError -> Mix.raise(reason(node, error.original))
    error -> Mix.raise(reason(node, error))
  end

  defp reason(node, {:erpc, :noconnection}), do: "#{node} can no longer be reached"
  defp reason(node, {:erpc, :timeout}), do: "#{node} does not answer within #{@timeout_ms} ms"

  defp reason(node, {:exception, :undef, _}),
    do: "#{node} has no inet_rdma in its code path: all its links are over TCP or another carrier"

  defp reason(node, reason), do: "#{node}: #{inspect(reason)}"

  @doc """
  The links of the second sample, busiest first, a line above them with their sums, and a header.

  Rates are those between the samples; a link that is new since the first sample, or began again, has none.
  """
  @spec table(node(), sample(), sample()) :: iodata()
  def table(node, {since, before}, {now, infos}) do
    old = Map.new(before, &{key(&1), &1})
    links = Enum.map(infos, &measure(&1, old[key(&1)], (now - since) / 1000))
    links = Enum.sort_by(links, &{-traffic(&1), &1.node})
    rows = [@header | Enum.map(links, &row/1)]
    [title(node, links), "\n\n", if(links == [], do: [], else: :inet_rdma_text.table(rows, " "))]
  end

  @doc "Who fills each link of late: the three heaviest in each direction, as `:inet_rdma.top/0` of the node says."
  @spec senders!(node()) :: IO.chardata()
  def senders!(node) do
    tops = :erpc.call(node, :inet_rdma, :top, [], @timeout_ms)

    case :inet_rdma_top.table(Enum.reject(tops, &(elem(&1, 0) == node())), 3) do
      [] -> "\n\nno link counts its senders\n"
      table -> ["\n\n", table]
    end
  rescue
    error in ErlangError -> Mix.raise(reason(node, error.original))
    error -> Mix.raise(reason(node, error))
  end

  # A link over TCP has no id.
  defp key(info), do: {info.node, info[:id]}

  defp measure(info, old, seconds) do
    rate = fn name -> if old && seconds > 0 && info[name] >= old[name], do: (info[name] - old[name]) / seconds end
    names = [received: :bytes_received, sent: :bytes_sent, in: :packets_received, out: :packets_sent]
    Map.put(info, :rates, Map.new(names, fn {short, name} -> {short, rate.(name)} end))
  end

  defp traffic(%{rates: rates}), do: (rates.received || 0) + (rates.sent || 0)

  defp title(node, links) do
    fabrics = for {fabric, count} <- Enum.sort(Enum.frequencies_by(links, & &1.fabric)), do: "#{count} #{fabric}"
    known = for %{rates: %{received: received} = rates} when received != nil <- links, do: rates
    sum = fn name -> known |> Enum.map(& &1[name]) |> Enum.sum() |> bytes() end
    rates = if known == [], do: "", else: "  received #{sum.(:received)}/s, sent #{sum.(:sent)}/s"
    "#{node}  #{if links == [], do: "no links", else: "links: " <> Enum.join(fabrics, ", ")}#{rates}"
  end

  defp row(%{rates: rates} = info) do
    %{state: state, direct: direct, via: via} = words(info)

    [to_string(info.node), to_string(info.fabric), state, bytes(rates.received), bytes(rates.sent)] ++
      [count(rates.in), count(rates.out), direct, bytes(info[:bytes_pending]), round_trip(info)] ++
      [count(info[:losses]), count(info[:resumes]), count(info[:moves]), via, to_string(info.why)]
  end

  @doc "The words of `:inet_rdma.i/0` about the state of a link, its share of direct bytes and its detour."
  @spec words(map()) :: %{state: String.t(), direct: String.t(), via: String.t()}
  def words(info) do
    %{
      state: to_string(:inet_rdma_info.state(info)),
      direct: to_string(:inet_rdma_info.direct(info)),
      via: to_string(:inet_rdma_info.via(info))
    }
  end

  # The median of the last minute; links over TCP have it.
  defp round_trip(%{round_trip_p50_us: us}) when us >= 1000, do: decimal(us / 1000, "ms")
  defp round_trip(%{round_trip_p50_us: us}), do: "#{us} us"
  defp round_trip(_info), do: "-"

  defp count(nil), do: "-"
  defp count(number), do: to_string(round(number))

  defp bytes(nil), do: "-"
  defp bytes(number) when number >= 1_000_000_000, do: decimal(number / 1_000_000_000, "GB")
  defp bytes(number) when number >= 1_000_000, do: decimal(number / 1_000_000, "MB")
  defp bytes(number) when number >= 1_000, do: decimal(number / 1_000, "KB")
  defp bytes(number), do: "#{round(number)} B"

  defp decimal(number, unit), do: :erlang.float_to_binary(number, decimals: 1) <> " " <> unit
end
