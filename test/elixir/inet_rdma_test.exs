defmodule InetRdmaTest do
  use ExUnit.Case, async: true

  alias InetRdma.{Info, Listener, Socket}
  alias InetRdma.Test.Os

  @timeout_ms 10_000
  @ebin Path.dirname(to_string(:code.which(:inet_rdma)))

  # Both ends of a new connection, in this process.
  defp pair(options \\ []) do
    {:ok, listener} = InetRdma.listen(0, options)
    {:ok, port} = InetRdma.port(listener)
    {:ok, client} = InetRdma.connect("localhost", port, options, @timeout_ms)
    {:ok, server} = InetRdma.accept(listener, @timeout_ms)
    :ok = InetRdma.close(listener)
    {client, server}
  end

  # A node of its own process, which goes with the test.
  defp start_node(more) do
    args = ["-pa", @ebin, "-sname", Os.node_name("info"), "-setcookie", "info", "-connect_all", "false"] ++ more
    {:ok, peer, node} = :peer.start_link(%{connection: :standard_io, args: Enum.map(args, &to_charlist/1)})
    {peer, node}
  end

  defp next_message(socket) do
    receive do
      message ->
        case InetRdma.message(socket, message) do
          :unknown -> next_message(socket)
          meaning -> meaning
        end
    after
      @timeout_ms -> flunk("no message for the socket")
    end
  end

  describe "in one VM" do
    test "bytes go both ways" do
      {client, server} = pair()
      assert %Socket{} = client
      assert :ok = InetRdma.send(client, ["to ", [?t, "he"], " server"])
      assert {:ok, "to the server"} = InetRdma.recv(server, 13, @timeout_ms)
      assert :ok = InetRdma.send(server, "and back")
      assert {:ok, "and "} = InetRdma.recv(client, 4, @timeout_ms)
      assert {:ok, "back"} = InetRdma.recv(client, 0, @timeout_ms)
    end

    test "a stream inside TLS is encrypted" do
      # Mix takes applications that the project does not list out of the code path, from Elixir 1.15 on.
      if function_exported?(Mix, :ensure_application!, 1), do: apply(Mix, :ensure_application!, [:ssl])
      made = [digest: :sha256, key: {:namedCurve, :secp256r1}]
      chain = %{root: made, intermediates: [], peer: made}

      %{server_config: server, client_config: client} =
        :public_key.pkix_test_data(%{server_chain: chain, client_chain: chain})

      listening = [tls: [verify: :verify_peer, fail_if_no_peer_cert: true] ++ server, encrypt_shm: true]
      {:ok, listener} = InetRdma.listen(0, listening)
      {:ok, port} = InetRdma.port(listener)
      assert {:ok, {:tls, {0, 0, 0, 0}, ^port}} = InetRdma.sockname(listener)
      # Those certificates name this host as it calls itself.
      connecting = [verify: :verify_peer, server_name_indication: :net_adm.localhost()] ++ client
      {:ok, client} = InetRdma.connect("localhost", port, [tls: connecting], @timeout_ms)
      {:ok, server} = InetRdma.accept(listener, @timeout_ms)
      assert :ok = InetRdma.send(client, "hello")
      assert {:ok, "hello"} = InetRdma.recv(server, 5, @timeout_ms)
      assert %Info{cipher: cipher} = InetRdma.info(client)
      assert cipher in [:aes_256_gcm, :chacha20_poly1305]
      assert {:error, reason} = InetRdma.connect("localhost", port, [tls: [verify: :verify_none]], @timeout_ms)
      assert to_string(:inet_rdma.format_error(reason)) =~ "TLS"
      assert :ok = InetRdma.close(listener)
      assert {:error, :closed} = InetRdma.accept(listener, @timeout_ms)
    end

    test "sockets survive their listener" do
      {:ok, listener} = InetRdma.listen(0)
      assert %Listener{} = listener
      {:ok, port} = InetRdma.port(listener)
      assert {:ok, {:shm, ^port}} = InetRdma.sockname(listener)
      {:ok, client} = InetRdma.connect({127, 0, 0, 1}, port, [], @timeout_ms)
      {:ok, server} = InetRdma.accept(listener, @timeout_ms)
      assert :ok = InetRdma.close(listener)
      assert :ok = InetRdma.send(client, "still here")
      assert {:ok, "still here"} = InetRdma.recv(server, 10, @timeout_ms)
      assert {:error, :econnrefused} = InetRdma.connect("localhost", port, [], @timeout_ms)
    end

    test "a receive and an accept give up after their time" do
      {:ok, listener} = InetRdma.listen(0)
      assert {:error, :timeout} = InetRdma.accept(listener, 10)
      {client, _server} = pair()
      assert {:error, :timeout} = InetRdma.recv(client, 1, 10)
    end

    test "packet: 4 keeps packets whole" do
      {client, server} = pair(packet: 4)
      packets = ["one", "", String.duplicate("three", 100_000)]
      # More than fits on the way: the sender waits for the reader.
      sender = Task.async(fn -> for packet <- packets, do: :ok = InetRdma.send(client, packet) end)
      assert {:ok, "one"} = InetRdma.recv(server, 0, @timeout_ms)
      assert {:ok, ""} = InetRdma.recv(server, 0, @timeout_ms)
      assert {:ok, three} = InetRdma.recv(server, 0, @timeout_ms)
      assert three == String.duplicate("three", 100_000)
      assert [:ok, :ok, :ok] = Task.await(sender)
    end

    test "an active socket sends messages, which message/2 explains" do
      {client, server} = pair(packet: 4)
      :ok = InetRdma.setopts(server, active: 2)
      for packet <- ~w(a b c), do: :ok = InetRdma.send(client, packet)
      assert {:data, "a"} = next_message(server)
      assert {:data, "b"} = next_message(server)
      assert :passive = next_message(server)
      assert {:ok, [active: false]} = InetRdma.getopts(server, [:active])

      :ok = InetRdma.setopts(server, active: :once)
      assert {:data, "c"} = next_message(server)
      :ok = InetRdma.setopts(server, active: true)
      :ok = InetRdma.close(client)
      assert :closed = next_message(server)
    end

    test "a message about another socket is unknown" do
      {client, server} = pair()
      assert :unknown = InetRdma.message(client, {:inet_rdma, server.handle, "data"})
      assert :unknown = InetRdma.message(client, {:inet_rdma_closed, server.handle})
      assert :unknown = InetRdma.message(client, :anything)
      assert {:error, :why} = InetRdma.message(client, {:inet_rdma_error, client.handle, :why})
    end

    test "one direction can be closed, and the other still works" do
      {client, server} = pair()
      :ok = InetRdma.send(client, "last words")
      :ok = InetRdma.shutdown(client, :write)
      assert {:ok, "last words"} = InetRdma.recv(server, 10, @timeout_ms)
      assert {:error, :closed} = InetRdma.recv(server, 1, @timeout_ms)
      :ok = InetRdma.send(server, "understood")
      assert {:ok, "understood"} = InetRdma.recv(client, 10, @timeout_ms)
    end

    test "a socket belongs to its owner, who can give it away and whose death closes it" do
      {client, server} = pair()
      test = self()

      owner =
        spawn(fn ->
          receive do
            :yours -> send(test, {:received, InetRdma.recv(server, 3, @timeout_ms)})
          end
        end)

      :ok = InetRdma.controlling_process(server, owner)
      :ok = InetRdma.send(client, "hey")
      send(owner, :yours)
      assert_receive {:received, {:ok, "hey"}}, @timeout_ms
      assert {:error, :closed} = InetRdma.recv(client, 1, @timeout_ms)
    end

    test "info/1 and getstat/1 count what was sent, and info/0 lists the socket" do
      {client, server} = pair()
      :ok = InetRdma.send(client, String.duplicate("x", 1000))
      {:ok, _data} = InetRdma.recv(server, 1000, @timeout_ms)

      assert %Info{fabric: :shm, node: nil, bytes_sent: 1000, bytes_received: 0} = info = InetRdma.info(client)
      assert info.direct_bytes_sent + info.indirect_bytes_sent == 1000
      assert %Info{bytes_received: 1000} = InetRdma.info(server)
      assert {:ok, stat} = InetRdma.getstat(client)
      assert stat[:send_oct] == 1000
      assert info.id in Enum.map(InetRdma.info(), & &1.id)
    end

    @tag timeout: 600_000
    test "the struct of info/1 has the keys of every link, and no others that are links' alone" do
      ours = ["-proto_dist", "inet_rdma", "-inet_rdma", "move", "eager"]
      {a, _} = start_node(ours)
      peers = for args <- [ours, ours ++ ["-inet_rdma", "fabric", "tcp", "compress", "true"], []], do: start_node(args)

      infos =
        for {_, node} <- peers do
          true = :peer.call(a, :net_kernel, :connect_node, [node])
          info = fn -> :peer.call(a, :inet_rdma, :info, [node]) end
          # A link over TCP asks its peer with its first packets.
          ^node = :peer.call(a, :erpc, :call, [node, :erlang, :node, []])
          measured? = &(&1.fabric != :tcp or not is_map_key(&1, :losses) or is_map_key(&1, :round_trips))
          info |> Stream.repeatedly() |> Enum.find(measured?)
        end

      assert [:shm, :tcp, :tcp] == Enum.map(infos, & &1.fabric)
      keys = Enum.map(infos, &(&1 |> Map.keys() |> MapSet.new()))
      assert Enum.reduce(keys, &MapSet.union/2) == %Info{} |> Map.from_struct() |> Map.keys() |> MapSet.new()
      # A link between two nodes with inet_rdma has a session, whatever carries it.
      [shm, tcp, plain] = keys
      of_links = MapSet.new([:bytes_pending, :up_ms, :suspended, :suspended_ms] ++ :inet_rdma_counts.keys(:session))
      assert MapSet.subset?(of_links, shm) and MapSet.subset?(of_links, tcp)
      assert MapSet.intersection(plain, of_links) == MapSet.new([:bytes_pending, :up_ms])
    end

    test "type and docs of the struct have its keys" do
      keys = %Info{} |> Map.from_struct() |> Map.keys() |> Enum.sort()
      {:ok, types} = Code.Typespec.fetch_types(Info)
      [{:type, _, :map, fields}] = for {:type, {:t, form, []}} <- types, do: form
      typed = for {:type, _, :map_field_exact, [{:atom, _, key}, _]} <- fields, key != :__struct__, do: key
      assert Enum.sort(typed) == keys
      {:docs_v1, _, _, _, %{"en" => text}, _, _} = Code.fetch_docs(Info)
      documented = for [_, key] <- Regex.scan(~r/^\* `([a-z0-9_]+)`/m, text), do: String.to_existing_atom(key)
      assert Enum.sort(documented) == keys
    end

    test "the side that connected knows the port, the other has it" do
      {client, server} = pair()
      assert {:ok, {:shm, port}} = InetRdma.peername(client)
      assert {:ok, {:shm, ^port}} = InetRdma.sockname(server)
      assert InetRdma.peername(server) == InetRdma.sockname(client)
    end

    test "there is no connection to a node that was never met" do
      assert nil == InetRdma.info(:never_met@nowhere)
    end

    test "an unknown option is refused by name" do
      assert {:error, reason} = InetRdma.listen(0, no_such_option: 1)
      assert inspect(reason) =~ "no_such_option"
    end
  end

  describe "of the links between two nodes" do
    @tag timeout: 600_000
    test "what fills a link is told and printed" do
      [name, peer] = for word <- ~w(api_a api_b), do: Os.node_name(word)
      args = ["-pa", @ebin | Os.node_args(peer, "inet_rdma", "api_cookie")] ++ ["-connect_all", "false"]
      Os.start!("erl", args ++ ["-eval", "io:format(\"ready~n\")."]) |> Os.await_line!(~r/^ready$/)

      script = """
      peer = :"#{peer}"
      {:error, :no_link} = InetRdma.top(peer)
      true = Node.connect(peer)
      Process.register(self(), :the_sender)
      for _ <- 1..20, do: send({:the_target, peer}, :binary.copy("x", 100_000))
      :pong = :net_adm.ping(peer)
      {:ok, %{sent: %{all: %{rows: [heaviest | _]}}}} = {:ok, top} = InetRdma.top(peer)
      %{from: {pid, :the_sender}, to: {:name, :the_target}, operation: :reg_send} = heaviest
      true = pid == self() and heaviest.percent > 90
      [{^peer, {:ok, %{sent: _, received: _}}}] = InetRdma.top()
      {messages, bytes} = top.sent.operations.reg_send
      true = messages >= 20
      IO.puts("bytes: \#{bytes}")
      :ok = InetRdma.i()
      :ok = InetRdma.i(peer)
      """

      flags = "-pa #{@ebin} -proto_dist inet_rdma -setcookie api_cookie -connect_all false"
      output = Os.run!("elixir", ["--erl", flags, "--sname", name, "-e", script])
      assert [_, bytes] = Regex.run(~r/^bytes: (\d+)$/m, output)
      assert String.to_integer(bytes) in 2_000_000..2_010_000
      assert length(Regex.scan(~r/^#{peer} +(tcp|shm) +up /m, output)) == 2
      assert output =~ ~r/^#{peer} +sent +\d+% +\d+ KB\/s +reg_send +<[\d.]+> \(the_sender\) +the_target$/m
    end
  end

  describe "between two processes of the operating system" do
    setup do
      paths = Enum.flat_map(:code.get_path(), &[~c"-pa", &1])
      {:ok, peer, _node} = :peer.start_link(%{connection: :standard_io, args: paths})
      %{peer: peer}
    end

    test "bytes go both ways, and the end of the other process closes the connection", %{peer: peer} do
      {:ok, listener} = InetRdma.listen(0)
      {:ok, port} = InetRdma.port(listener)
      :peer.cast(peer, __MODULE__.Echo, :run, [port])
      {:ok, server} = InetRdma.accept(listener, @timeout_ms)

      for size <- [1, 1_000, 1_000_000] do
        data = :rand.bytes(size)
        :ok = InetRdma.send(server, data)
        assert {:ok, ^data} = InetRdma.recv(server, size, @timeout_ms)
      end

      :ok = :peer.stop(peer)
      assert {:error, :peer_gone} = InetRdma.recv(server, 1, @timeout_ms)
    end
  end
end
