defmodule InetRdma.StreamError do
  @moduledoc "A stream over a socket could not go on; `reason` is the reason that `:inet_rdma` gave."

  defexception [:doing, :reason]

  @impl true
  def message(%{doing: doing, reason: reason}) do
    "cannot #{doing} over RDMA: #{:inet_rdma.format_error(reason)}"
  end
end
