defmodule InetRdma.Listener do
  @moduledoc "A port that is listened on. `handle` is the Erlang listener."

  @enforce_keys [:handle]
  defstruct [:handle]

  @type t :: %__MODULE__{handle: :inet_rdma.listener()}
end
