defmodule MixCluster.MixProject do
  use Mix.Project

  def project do
    [
      app: :mix_cluster,
      version: "1.0.0",
      elixir: "~> 1.14",
      deps: [{:inet_rdma, path: "../../.."}],
      default_release: :mix_cluster,
      releases: [
        mix_cluster: [include_executables_for: [:unix]],
        with_tools: [include_executables_for: [:unix], steps: [:assemble, &InetRdma.Tools.add_to_release/1]]
      ]
    ]
  end

  def application, do: [mod: {MixCluster, []}]
end
