defmodule MixCluster do
  @moduledoc """
  An application as any other: a process with a global name, and nothing that knows of the carrier.
  """
  use Application

  @impl Application
  def start(_type, _args) do
    Supervisor.start_link([MixCluster.Register], strategy: :one_for_one)
  end

  @doc "Stores a value on this node."
  def put(key, value), do: Agent.update(MixCluster.Register, &Map.put(&1, key, value))

  @doc "Reads a value that was stored on another node."
  def fetch(node, key), do: Agent.get({MixCluster.Register, node}, &Map.get(&1, key))
end
