defmodule InetRdma do
  @moduledoc """
  Stream sockets over RDMA queue pairs, in the manner of `:gen_tcp`.

      {:ok, listener} = InetRdma.listen(0)
      {:ok, port} = InetRdma.port(listener)
      {:ok, client} = InetRdma.connect("localhost", port)
      {:ok, server} = InetRdma.accept(listener, 5_000)
      :ok = InetRdma.send(client, "hello")
      {:ok, "hello"} = InetRdma.recv(server, 5, 5_000)

  This module only translates: the sockets are those of the Erlang module `:inet_rdma`, where every option and
  every error reason is documented. Erlang distribution over RDMA does not need this module: start the node
  with `-proto_dist inet_rdma`, then look at its links with `info/0`.

  A connection within one host goes through shared memory, one to another host over an RDMA device. On a machine with a
  device, every host that reaches the port can connect to `listen/2`; `fabric: :shm` keeps it to this host and this user
  (docs/SECURITY.md).

  ## Active mode

  An active socket sends its owner messages that carry the Erlang socket, `socket.handle`:

      {:inet_rdma, handle, data}
      {:inet_rdma_closed, handle}
      {:inet_rdma_error, handle, reason}
      {:inet_rdma_passive, handle}

  `message/2` tells whether a message belongs to a socket, and decodes it.
  """

  import Kernel, except: [send: 2]

  alias InetRdma.{Info, Listener, Socket}

  @typedoc "A host name, an IP address as a string, or a tuple as `:inet` has it."
  @type host :: String.t() | charlist() | atom() | :inet.ip_address()

  @typedoc "An option of `connect/4`, `listen/2` or `setopts/2`; docs/OPTIONS.md has them all."
  @type option :: :inet_rdma.option()

  @typedoc """
  `{:shm, port}`, the side that connected with port 0; `{:verbs | :tcp, ip, port}`; of a listener `{:tls, ip, port}`.
  """
  @type address :: :inet_rdma.address()

  @typedoc "An atom, or a term that explains more; `:closed` and `:timeout` mean what they mean for `:gen_tcp`."
  @type reason :: :inet_rdma.reason()

  @doc """
  Listens on `port`; 0 takes a free one, see `port/1`.

  The caller owns the listener: its death closes the port, not the connections that came through it.
  """
  @spec listen(:inet.port_number(), [option()]) :: {:ok, Listener.t()} | {:error, reason()}
  def listen(port, options \\ []) do
    with {:ok, handle} <- :inet_rdma.listen(port, options), do: {:ok, %Listener{handle: handle}}
  end

  @doc "Waits up to `timeout` milliseconds for a connection. The caller owns the new socket."
  @spec accept(Listener.t(), timeout()) :: {:ok, Socket.t()} | {:error, reason()}
  def accept(%Listener{handle: handle}, timeout \\ :infinity) do
    with {:ok, socket} <- :inet_rdma.accept(handle, timeout), do: {:ok, %Socket{handle: socket}}
  end

  @doc """
  Connects to `port` on `host`, within `timeout` or the option `connect_timeout_ms`, whichever is shorter.

  The caller owns the new socket.
  """
  @spec connect(host(), :inet.port_number(), [option()], timeout()) :: {:ok, Socket.t()} | {:error, reason()}
  def connect(host, port, options \\ [], timeout \\ :infinity) do
    with {:ok, handle} <- :inet_rdma.connect(erlang_host(host), port, options, timeout),
         do: {:ok, %Socket{handle: handle}}
  end

  @doc """
  Gives the socket to another process. Only the owner may do so; its death closes the connection.

  Messages of the socket that the caller has not received yet go to the new owner.
  """
  @spec controlling_process(Socket.t(), pid()) :: :ok | {:error, reason()}
  def controlling_process(%Socket{handle: handle}, pid), do: :inet_rdma.controlling_process(handle, pid)

  @doc "Sends `data`. Waits while the peer has no room for it."
  @spec send(Socket.t(), iodata()) :: :ok | {:error, reason()}
  def send(%Socket{handle: handle}, data), do: :inet_rdma.send(handle, data)

  @doc """
  Receives `length` bytes, or whatever is there when `length` is 0, within `timeout` milliseconds.

  With `packet: 1`, `2` or `4` it receives one packet, with `packet: :line` one line, and `length` must be 0.
  """
  @spec recv(Socket.t(), non_neg_integer(), timeout()) :: {:ok, binary()} | {:error, reason()}
  def recv(%Socket{handle: handle}, length, timeout \\ :infinity), do: :inet_rdma.recv(handle, length, timeout)

  @doc """
  Sends `data` without waiting. The caller gets `{:inet_rdma_sent, handle, ref, {:ok, bytes} | {:error, reason}}` when
  the data is on its way. `{:error, :enobufs}`: `sends_max` sends are posted already, and this one is not posted.
  """
  @spec post_send(Socket.t(), iodata()) :: {:ok, reference()} | {:error, reason()}
  def post_send(%Socket{handle: handle}, data), do: :inet_rdma.post_send(handle, data)

  @doc """
  Receives without waiting; `length` as in `recv/3`. The caller gets
  `{:inet_rdma_received, handle, ref, {:ok, data} | {:error, reason}}`.

  The peer learns of the receive before it sends. It writes a message of `length` bytes (up to `landing_bytes`)
  straight into the buffer that becomes `data`. `{:error, :enobufs}`: `receives_max` receives are posted already.
  """
  @spec post_recv(Socket.t(), non_neg_integer()) :: {:ok, reference()} | {:error, reason()}
  def post_recv(%Socket{handle: handle}, length), do: :inet_rdma.post_recv(handle, length)

  @doc """
  Takes back a posted send or receive. `:ok`: there is no message for it, and no data is lost.
  `{:error, :too_late}`: its message has come, or comes.
  """
  @spec cancel(Socket.t(), reference()) :: :ok | {:error, :too_late | :closed}
  def cancel(%Socket{handle: handle}, ref), do: :inet_rdma.cancel(handle, ref)

  @doc """
  Sends a file, and gives the number of its bytes. Reads while it sends, in bounded memory. `InetRdma.Stream` sends any
  enumerable.
  """
  @spec sendfile(Path.t(), Socket.t()) :: {:ok, non_neg_integer()} | {:error, reason()}
  def sendfile(path, %Socket{handle: handle}), do: :inet_rdma.sendfile(path, handle)

  @doc """
  Sends `bytes` of a file (0: to its end) from `offset` on; `file` is a path or what `:file.open/2` gave. The option
  `chunk_size` says how much is read at a time.
  """
  @spec sendfile(Path.t() | :file.fd(), Socket.t(), non_neg_integer(), non_neg_integer(), chunk_size: pos_integer()) ::
          {:ok, non_neg_integer()} | {:error, reason()}
  def sendfile(file, %Socket{handle: handle}, offset, bytes, options \\ []) do
    :inet_rdma.sendfile(file, handle, offset, bytes, options)
  end

  @doc "The socket as a stream that can be read from and written into, see `InetRdma.Stream`."
  @spec stream(Socket.t()) :: InetRdma.Stream.t()
  def stream(%Socket{} = socket), do: %InetRdma.Stream{socket: socket}

  @doc "Closes one direction, or both, in order: what was sent before still arrives."
  @spec shutdown(Socket.t(), :read | :write | :read_write) :: :ok | {:error, reason()}
  def shutdown(%Socket{handle: handle}, how), do: :inet_rdma.shutdown(handle, how)

  @doc "Closes a socket or a listener. Connections that a listener accepted stay open."
  @spec close(Socket.t() | Listener.t()) :: :ok
  def close(%module{handle: handle}) when module in [Socket, Listener], do: :inet_rdma.close(handle)

  @doc "The address and port of the other side."
  @spec peername(Socket.t()) :: {:ok, address()} | {:error, reason()}
  def peername(%Socket{handle: handle}), do: :inet_rdma.peername(handle)

  @doc "The address and port of this side."
  @spec sockname(Socket.t() | Listener.t()) :: {:ok, address()} | {:error, reason()}
  def sockname(%module{handle: handle}) when module in [Socket, Listener], do: :inet_rdma.sockname(handle)

  @doc "The port that a listener listens on."
  @spec port(Listener.t()) :: {:ok, :inet.port_number()}
  def port(%Listener{handle: handle}), do: :inet_rdma.port(handle)

  @doc "Sets options of an open socket."
  @spec setopts(Socket.t(), [option()]) :: :ok | {:error, reason()}
  def setopts(%Socket{handle: handle}, options), do: :inet_rdma.setopts(handle, options)

  @doc "Reads options of an open socket."
  @spec getopts(Socket.t(), [atom()]) :: {:ok, [option()]} | {:error, reason()}
  def getopts(%Socket{handle: handle}, names), do: :inet_rdma.getopts(handle, names)

  @doc "Counters of a socket under the names that `:inet.getstat/1` uses."
  @spec getstat(Socket.t()) :: {:ok, [{atom(), non_neg_integer()}]} | {:error, reason()}
  def getstat(%Socket{handle: handle}), do: :inet_rdma.getstat(handle)

  @doc "Every open connection of this node: the links to other nodes and the sockets."
  @spec info() :: [Info.t()]
  def info, do: Enum.map(:inet_rdma.info(), &Info.new/1)

  @doc "The connection of a socket, or the link to a node; `nil` if the connection is closed or there is no link."
  @spec info(Socket.t() | node()) :: Info.t() | nil
  def info(%Socket{handle: handle}), do: info_or_nil(handle)
  def info(node) when is_atom(node), do: info_or_nil(node)

  @doc "Prints the links and sockets of this node as a table, in the manner of `:inet.i/0`."
  @spec i() :: :ok
  def i, do: :inet_rdma.i()

  @doc """
  Prints the row of `i/0` of the link to `node`, and the ten heaviest rows of `top/1` in each direction: what fills the
  link.
  """
  @spec i(node()) :: :ok
  def i(node) when is_atom(node), do: :inet_rdma.i(node)

  @doc """
  The bytes of the link to `node` by operation, sender and target, in both directions, as `:inet_rdma.top/1` has them.

      {:ok, %{sent: %{recent: %{total: total, rows: [heaviest | _]}}}} = InetRdma.top(:b@host)
      %{from: from, to: to, operation: operation, percent: percent} = heaviest

  `recent` is in bytes per second, of about the last 10 s. `{:error, :attribution_off}`: the option `attribution` was
  off when the link came up; `{:error, :other_carrier}`: the peer does not run inet_rdma.
  """
  @spec top(node()) :: {:ok, :inet_rdma.top()} | {:error, :no_link | :other_carrier | :attribution_off}
  def top(node) when is_atom(node), do: :inet_rdma.top(node)

  @doc "`top/1` of each link of this node, with the name of the peer."
  @spec top() :: [{node(), {:ok, :inet_rdma.top()} | {:error, :no_link | :other_carrier | :attribution_off}}]
  def top, do: :inet_rdma.top()

  defp info_or_nil(of) do
    case :inet_rdma.info(of) do
      :undefined -> nil
      info -> Info.new(info)
    end
  end

  @doc """
  Decodes a message of a socket in active mode, or about a posted send or receive; `:unknown` for a message that is not
  about this socket.

      receive do
        message ->
          case InetRdma.message(socket, message) do
            {:data, data} -> ...
            :closed -> ...
          end
      end
  """
  @spec message(Socket.t(), term()) ::
          {:data, binary()}
          | :closed
          | {:error, reason()}
          | :passive
          | {:sent, reference(), {:ok, non_neg_integer()} | {:error, reason()}}
          | {:received, reference(), {:ok, binary()} | {:error, reason()}}
          | :unknown
  def message(%Socket{handle: handle}, {:inet_rdma, handle, data}), do: {:data, data}
  def message(%Socket{handle: handle}, {:inet_rdma_closed, handle}), do: :closed
  def message(%Socket{handle: handle}, {:inet_rdma_error, handle, reason}), do: {:error, reason}
  def message(%Socket{handle: handle}, {:inet_rdma_passive, handle}), do: :passive
  def message(%Socket{handle: handle}, {:inet_rdma_sent, handle, ref, result}), do: {:sent, ref, result}
  def message(%Socket{handle: handle}, {:inet_rdma_received, handle, ref, result}), do: {:received, ref, result}
  def message(%Socket{}, _message), do: :unknown

  defp erlang_host(host) when is_binary(host), do: String.to_charlist(host)
  defp erlang_host(host), do: host
end
