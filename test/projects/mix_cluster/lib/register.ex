defmodule MixCluster.Register do
  @moduledoc "What one node remembers."
  use Agent

  def start_link(_options), do: Agent.start_link(fn -> %{} end, name: __MODULE__)
end
