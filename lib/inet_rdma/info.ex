defmodule InetRdma.Info do
  # The keys, their types and meanings are those of the Erlang module inet_rdma_counts.
  @external_resource Path.join(__DIR__, "../../src/base/inet_rdma_counts.erl")
  @rows :inet_rdma_counts.list()
  @keys for {key, _kind, _unit, _origins, _series, _meaning} <- @rows, do: key

  @units %{none: "", bytes: " (bytes)", ms: " (milliseconds)", us: " (microseconds)", percent: " (percent)"}
  @meanings for {key, _kind, unit, _origins, _series, meaning} <- @rows, do: "* `#{key}`#{@units[unit]} - #{meaning}\n"

  @moduledoc """
  What one connection is and did, from `:inet_rdma.info/0,1`.

  A field is `nil` where the connection does not have it: each has `fabric`, `why`, `state` and the bytes and packets
  sent and received; only a queue pair has transfers, events and memory; only a link has what the keys say of links.
  `direct` is what went straight into an advertised landing buffer, `indirect` what went through the ring. Bytes,
  packets and their sizes of a link are counted over all the paths that it had.

  #{@meanings}
  """

  defstruct @keys

  type = fn
    kind when kind in [:counter, :gauge] -> quote(do: non_neg_integer())
    :float -> quote(do: number())
    :boolean -> quote(do: boolean())
    :text -> quote(do: String.t())
    :node -> quote(do: node() | nil)
    {:one_of, atoms} -> atoms |> Enum.reverse() |> Enum.reduce(&{:|, [], [&1, &2]})
  end

  @types (for {key, kind, _unit, origins, _series, _meaning} <- @rows do
            of_kind = type.(kind)
            {key, if(:every in origins, do: of_kind, else: quote(do: unquote(of_kind) | nil))}
          end)

  @type t :: %__MODULE__{unquote_splicing(@types)}

  @doc """
  Makes the struct from the Erlang map. Erlang says `undefined` where Elixir says `nil`, and texts are strings here.
  """
  @spec new(map()) :: t()
  def new(info) when is_map(info) do
    struct(__MODULE__, Map.new(info, fn {key, value} -> {key, elixir(value)} end))
  end

  defp elixir(:undefined), do: nil
  defp elixir(text) when is_list(text), do: List.to_string(text)
  defp elixir(value), do: value
end
