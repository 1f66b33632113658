# Two nodes exchange tensors (binaries of 32-bit floats) over a stream beside the distribution, and sum them up as a
# training step would: a ring all-reduce over two. Then they measure.
#
#     elixir --erl "$(make -s erl-flags)" --sname one examples/tensor_exchange.exs wait
#     elixir --erl "$(make -s erl-flags)" --sname two examples/tensor_exchange.exs one@HOST
#
# The second asks the first, by distribution, for the port of a stream.
defmodule TensorExchange do
  # Pieces that land in a buffer of their own each: landing_bytes is a little more.
  @piece_bytes 65_536
  @pieces_posted 32
  @timeout_ms 60_000

  @reduced_floats 65_536
  @tensor_bytes 4 * 1024 * 1024
  @rounds 64

  @doc "Runs on the node that is asked: answers with a port, then does its part with the first peer that connects."
  def offer do
    caller = self()

    {pid, monitor} =
      spawn_monitor(fn ->
        # What is printed belongs here, and not to the node that asks, which may end first.
        Process.group_leader(self(), Process.whereis(:user))
        {:ok, listener} = InetRdma.listen(0)
        {:ok, port} = InetRdma.port(listener)
        send(caller, {self(), port})
        {:ok, socket} = InetRdma.accept(listener, @timeout_ms)
        run(socket, 0)
        :ok = InetRdma.close(socket)
        # The process that waits may end now.
        with pid when is_pid(pid) <- Process.whereis(TensorExchange), do: send(pid, :done)
      end)

    receive do
      {^pid, port} ->
        Process.demonitor(monitor, [:flush])
        port

      {:DOWN, ^monitor, :process, ^pid, reason} ->
        exit(reason)
    end
  end

  def connect(node) do
    port = :rpc.call(node, __MODULE__, :offer, [], @timeout_ms)
    [_name, host] = node |> to_string() |> String.split("@")
    {:ok, socket} = InetRdma.connect(host, port, [], @timeout_ms)
    run(socket, 1)
    :ok = InetRdma.close(socket)
  end

  # Both do the same, with the roles of the two halves swapped.
  defp run(socket, rank) do
    reduce(socket, rank)
    posted = rate(fn -> exchange_posted(socket) end)
    blocking = rate(fn -> exchange_blocking(socket, rank) end)
    info = InetRdma.info(socket)

    IO.puts("exchange, posted #{posted} MB/s each way")
    IO.puts("exchange, blocking #{blocking} MB/s each way")
    IO.puts("received directly #{Float.round(info.percent_direct_received * 1.0, 1)} %")
  end

  # Reduce-scatter, then all-gather: each sums up one half, and gets the other summed up.
  defp reduce(socket, rank) do
    tensor = for index <- 1..@reduced_floats, into: <<>>, do: <<index * (rank + 1)::float-32-native>>
    half = div(byte_size(tensor), 2)
    <<low::binary-size(half), high::binary>> = tensor
    {mine, theirs} = if rank == 0, do: {low, high}, else: {high, low}

    sum = add(mine, swap(socket, theirs))
    other = swap(socket, sum)
    reduced = if rank == 0, do: sum <> other, else: other <> sum

    for {<<value::float-32-native>>, index} <- Enum.with_index(chunks(reduced), 1) do
      ^value = index * 3.0
    end

    IO.puts("all-reduce of #{@reduced_floats} floats: right")
  end

  defp chunks(binary), do: for(<<chunk::binary-4 <- binary>>, do: chunk)

  defp add(left, right), do: add(left, right, [])

  defp add(<<x::float-32-native, left::binary>>, <<y::float-32-native, right::binary>>, sums),
    do: add(left, right, [<<x + y::float-32-native>> | sums])

  defp add(<<>>, <<>>, sums), do: sums |> Enum.reverse() |> IO.iodata_to_binary()

  # Sends a tensor and receives one of the same size, both at a time.
  defp swap(socket, tensor) do
    receive_ref = post_recv(socket, byte_size(tensor))
    {:ok, send_ref} = InetRdma.post_send(socket, tensor)
    data = await(receive_ref)
    await(send_ref)
    data
  end

  defp exchange_posted(socket) do
    tensor = :binary.copy(<<1.5::float-32-native>>, div(@tensor_bytes, 4))
    pieces = @rounds * div(@tensor_bytes, @piece_bytes)
    posted = for _ <- 1..@pieces_posted, do: post_recv(socket, @piece_bytes)
    sends = @rounds

    # All that is sent is posted by one process, all that is received comes to it: nobody waits for the other direction.
    loop(socket, tensor, {sends, :queue.new()}, {pieces - @pieces_posted, :queue.from_list(posted)})
  end

  defp loop(socket, tensor, {to_send, sending}, {to_receive, receiving}) do
    cond do
      to_send > 0 and :queue.len(sending) < 2 ->
        {:ok, ref} = InetRdma.post_send(socket, tensor)
        loop(socket, tensor, {to_send - 1, :queue.in(ref, sending)}, {to_receive, receiving})

      :queue.is_empty(sending) and :queue.is_empty(receiving) ->
        :ok

      true ->
        receive do
          {:inet_rdma_sent, _, ref, {:ok, _}} ->
            {{:value, ^ref}, sending} = :queue.out(sending)
            loop(socket, tensor, {to_send, sending}, {to_receive, receiving})

          {:inet_rdma_received, _, ref, {:ok, piece}} when byte_size(piece) == @piece_bytes ->
            {{:value, ^ref}, receiving} = :queue.out(receiving)

            if to_receive > 0 do
              receiving = :queue.in(post_recv(socket, @piece_bytes), receiving)
              loop(socket, tensor, {to_send, sending}, {to_receive - 1, receiving})
            else
              loop(socket, tensor, {to_send, sending}, {0, receiving})
            end
        end
    end
  end

  # One direction after the other, as a call waits for its end.
  defp exchange_blocking(socket, rank) do
    tensor = :binary.copy(<<1.5::float-32-native>>, div(@tensor_bytes, 4))

    for _ <- 1..@rounds do
      if rank == 0, do: :ok = InetRdma.send(socket, tensor)
      for _ <- 1..div(@tensor_bytes, @piece_bytes), do: {:ok, _} = InetRdma.recv(socket, @piece_bytes, @timeout_ms)
      if rank == 1, do: :ok = InetRdma.send(socket, tensor)
    end
  end

  defp post_recv(socket, bytes) do
    {:ok, ref} = InetRdma.post_recv(socket, bytes)
    ref
  end

  defp await(ref) do
    receive do
      {_what, _handle, ^ref, {:ok, result}} -> result
    after
      @timeout_ms -> raise "nothing came for #{@timeout_ms} ms"
    end
  end

  defp rate(exchange) do
    {microseconds, _} = :timer.tc(exchange)
    round(@rounds * @tensor_bytes / microseconds)
  end
end

case System.argv() do
  ["wait"] ->
    Process.register(self(), TensorExchange)
    IO.puts("ready")

    receive do
      :done -> :ok
    end

  [node] ->
    TensorExchange.connect(String.to_atom(node))

  _ ->
    IO.puts(:stderr, "usage: examples/tensor_exchange.exs wait | NODE")
    System.halt(2)
end
