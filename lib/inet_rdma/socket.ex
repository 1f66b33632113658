defmodule InetRdma.Socket do
  @moduledoc "One connection. `handle` is the Erlang socket, which `:inet_rdma` takes and active messages carry."

  @enforce_keys [:handle]
  defstruct [:handle]

  @type t :: %__MODULE__{handle: :inet_rdma.socket()}
end
