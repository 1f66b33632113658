defmodule MixCluster.MixProject do
  use Mix.Project

  def project do
    [
      app: :mix_cluster,
      version: "1.0.0",
      elixir: "~> 1.14",
      deps: [{:inet_rdma, path: "../../.."}],
      releases: [mix_cluster: [include_executables_for: [:unix]]]
    ]
  end

  def application, do: [mod: {MixCluster, []}]
end
