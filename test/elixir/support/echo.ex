defmodule InetRdmaTest.Echo do
  @moduledoc "Sends back what it receives. In a module of its own, as another VM runs it."

  def run(port) do
    {:ok, socket} = InetRdma.connect("localhost", port, [], 10_000)
    loop(socket)
  end

  defp loop(socket) do
    with {:ok, data} <- InetRdma.recv(socket, 0), :ok <- InetRdma.send(socket, data), do: loop(socket)
  end
end
