defmodule InetRdma.Stream do
  @moduledoc """
  A socket as a stream of binaries: `InetRdma.stream/1` makes it.

      File.stream!("here.bin", [], 65_536) |> Enum.into(InetRdma.stream(socket))
      InetRdma.stream(socket) |> Stream.into(File.stream!("there.bin")) |> Stream.run()

  Reading gives data as it arrives, in pieces (with `packet: 4` one packet each), until the peer has ended its stream.
  The socket must be passive, and have no posted receives.

  Writing sends each element, which may be any iodata. Up to four elements are on their way while the next one is made,
  which bounds the memory. When the last element is collected, all have been sent. The socket stays open both ways;
  `InetRdma.shutdown(socket, :write)` tells the peer that nothing follows.

  A failure raises `InetRdma.StreamError`, with the reason in words.
  """

  alias InetRdma.{Socket, StreamError}

  @enforce_keys [:socket]
  defstruct [:socket]

  @type t :: %__MODULE__{socket: Socket.t()}

  # Elements that are posted at a time.
  @posted_max 4

  @doc false
  @spec next(Socket.t()) :: {[binary()], Socket.t()} | {:halt, Socket.t()}
  def next(socket) do
    case InetRdma.recv(socket, 0) do
      {:ok, data} -> {[data], socket}
      {:error, :closed} -> {:halt, socket}
      {:error, reason} -> raise StreamError, doing: "receive", reason: reason
    end
  end

  @doc false
  @spec put(:queue.queue(reference()), Socket.t(), iodata()) :: :queue.queue(reference())
  def put(posted, socket, data) do
    with true <- :queue.len(posted) < @posted_max,
         {:ok, ref} <- InetRdma.post_send(socket, data) do
      :queue.in(ref, posted)
    else
      {:error, reason} when reason != :enobufs -> failed(posted, socket, reason)
      _full -> put_when_possible(posted, socket, data)
    end
  end

  # If other processes have posted as many sends as are allowed, waits for them.
  defp put_when_possible(posted, socket, data) do
    if :queue.is_empty(posted) do
      case InetRdma.send(socket, data) do
        :ok -> posted
        {:error, reason} -> failed(posted, socket, reason)
      end
    else
      posted |> await_oldest(socket) |> put(socket, data)
    end
  end

  @doc false
  @spec finish(:queue.queue(reference()), Socket.t()) :: :ok
  def finish(posted, socket) do
    if :queue.is_empty(posted), do: :ok, else: posted |> await_oldest(socket) |> finish(socket)
  end

  defp await_oldest(posted, socket) do
    {{:value, ref}, rest} = :queue.out(posted)

    case await(ref, socket) do
      {:ok, _bytes} -> rest
      {:error, reason} -> failed(rest, socket, reason)
    end
  end

  defp await(ref, %Socket{handle: handle}) do
    receive do
      {:inet_rdma_sent, ^handle, ^ref, result} -> result
    end
  end

  @spec failed(:queue.queue(reference()), Socket.t(), InetRdma.reason()) :: no_return()
  defp failed(posted, socket, reason) do
    forget(posted, socket)
    raise StreamError, doing: "send", reason: reason
  end

  # Waits for the messages of all posted sends, which would otherwise stay in the mailbox.
  @doc false
  @spec forget(:queue.queue(reference()), Socket.t()) :: :ok
  def forget(posted, socket), do: posted |> :queue.to_list() |> Enum.each(&await(&1, socket))

  defimpl Enumerable do
    def reduce(%{socket: socket}, acc, fun) do
      Stream.resource(fn -> socket end, &InetRdma.Stream.next/1, fn _socket -> :ok end).(acc, fun)
    end

    def count(_stream), do: {:error, __MODULE__}
    def member?(_stream, _element), do: {:error, __MODULE__}
    def slice(_stream), do: {:error, __MODULE__}
  end

  defimpl Collectable do
    def into(%{socket: socket} = stream) do
      collect = fn
        posted, {:cont, data} ->
          InetRdma.Stream.put(posted, socket, data)

        posted, :done ->
          InetRdma.Stream.finish(posted, socket)
          stream

        posted, :halt ->
          InetRdma.Stream.forget(posted, socket)
      end

      {:queue.new(), collect}
    end
  end
end
