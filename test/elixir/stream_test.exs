defmodule InetRdma.StreamTest do
  use ExUnit.Case, async: true

  alias InetRdma.{StreamError, Test.Os}

  @timeout_ms 10_000

  defp pair(fabric, options \\ []) do
    options = [fabric: fabric] ++ options
    {:ok, listener} = InetRdma.listen(0, options)
    {:ok, port} = InetRdma.port(listener)
    {:ok, client} = InetRdma.connect("localhost", port, options, @timeout_ms)
    {:ok, server} = InetRdma.accept(listener, @timeout_ms)
    {client, server}
  end

  # The other end is another process's: it connects, works, and closes at its end.
  defp with_peer(fabric, options \\ [], work) do
    options = [fabric: fabric] ++ options
    {:ok, listener} = InetRdma.listen(0, options)
    {:ok, port} = InetRdma.port(listener)

    peer =
      Task.async(fn ->
        {:ok, socket} = InetRdma.connect("localhost", port, options, @timeout_ms)
        work.(socket)
      end)

    {:ok, socket} = InetRdma.accept(listener, @timeout_ms)
    {socket, peer}
  end

  # auto is shared memory: both ends are of this host.
  for fabric <- [:auto, :tcp] do
    describe "over #{fabric}:" do
      @describetag fabric: fabric

      test "a file goes through a socket into a file", %{fabric: fabric} do
        dir = Os.scratch_dir()
        [here, there] = for name <- ~w(here there), do: Path.join(dir, name)
        data = :rand.bytes(3_000_000)
        File.write!(here, data)

        {server, peer} =
          with_peer(fabric, fn socket -> File.stream!(here, [], 65_536) |> Enum.into(InetRdma.stream(socket)) end)

        InetRdma.stream(server) |> Stream.into(File.stream!(there)) |> Stream.run()
        assert %InetRdma.Stream{} = Task.await(peer)
        assert File.read!(there) == data
      end

      test "elements are any iodata, and with packet: 4 each is a packet", %{fabric: fabric} do
        elements = ["one", ["t", [?w, "o"]], "", String.duplicate("three", 100_000)]

        {server, peer} = with_peer(fabric, [packet: 4], fn socket -> Enum.into(elements, InetRdma.stream(socket)) end)

        assert Enum.to_list(InetRdma.stream(server)) == Enum.map(elements, &IO.iodata_to_binary/1)
        Task.await(peer)
      end

      test "what is taken first leaves the rest", %{fabric: fabric} do
        {client, server} = pair(fabric, packet: 4)
        ~w(a b c) |> Enum.into(InetRdma.stream(client))
        assert ["a"] = server |> InetRdma.stream() |> Enum.take(1)
        assert ["b", "c"] = server |> InetRdma.stream() |> Enum.take(2)
      end

      test "more elements than may be posted wait for those before them", %{fabric: fabric} do
        {server, peer} =
          with_peer(fabric, [sends_max: 1], fn socket ->
            1..1_000 |> Stream.map(&<<&1::16>>) |> Enum.into(InetRdma.stream(socket))
          end)

        expected = for number <- 1..1_000, into: <<>>, do: <<number::16>>
        assert server |> InetRdma.stream() |> Enum.into(<<>>) == expected
        Task.await(peer)
      end

      test "a peer that goes away raises, in words, and leaves no message behind", %{fabric: fabric} do
        {client, server} = pair(fabric)
        {:ok, peer} = Task.start(fn -> Process.sleep(:infinity) end)
        :ok = InetRdma.controlling_process(server, peer)

        endless =
          Stream.repeatedly(fn ->
            {:ok, stat} = InetRdma.getstat(client)
            # The peer does not read: as soon as something waits for it, it is gone.
            if stat[:send_pend] > 0, do: Process.exit(peer, :kill)
            String.duplicate("x", 1_000_000)
          end)

        error = assert_raise StreamError, fn -> Enum.into(endless, InetRdma.stream(client)) end
        assert error.reason == :closed
        assert Exception.message(error) =~ "cannot send over RDMA: the connection was closed"
        refute_received {:inet_rdma_sent, _, _, _}
      end

      test "a socket that is read in another way raises", %{fabric: fabric} do
        {_client, server} = pair(fabric)
        {:ok, _ref} = InetRdma.post_recv(server, 10)

        assert_raise StreamError, ~r/cannot receive over RDMA: the call does not fit the mode of the socket/, fn ->
          Enum.to_list(InetRdma.stream(server))
        end
      end

      test "posted sends and receives complete as messages", %{fabric: fabric} do
        {client, server} = pair(fabric)
        {:ok, receive_ref} = InetRdma.post_recv(server, 5)
        {:ok, other_ref} = InetRdma.post_recv(server, 5)
        assert :ok = InetRdma.cancel(server, other_ref)
        {:ok, send_ref} = InetRdma.post_send(client, ["he", "llo"])
        assert_receive {:inet_rdma_sent, _, _, _} = sent, @timeout_ms
        assert {:sent, ^send_ref, {:ok, 5}} = InetRdma.message(client, sent)
        assert_receive {:inet_rdma_received, _, _, _} = received, @timeout_ms
        assert {:received, ^receive_ref, {:ok, "hello"}} = InetRdma.message(server, received)
        assert {:error, :too_late} = InetRdma.cancel(server, receive_ref)
        assert :unknown = InetRdma.message(client, received)
      end

      test "a file is sent whole and in part", %{fabric: fabric} do
        path = Path.join(Os.scratch_dir(), "file")
        File.write!(path, "0123456789")
        {client, server} = pair(fabric)
        assert {:ok, 10} = InetRdma.sendfile(path, client)
        assert {:ok, 3} = InetRdma.sendfile(path, client, 4, 3)
        assert {:ok, "0123456789456"} = InetRdma.recv(server, 13, @timeout_ms)
        assert {:error, :enoent} = InetRdma.sendfile(path <> "?", client)
      end
    end
  end
end
