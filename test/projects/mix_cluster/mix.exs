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
        # Built with ERL_LIBS, where Mix looks for an application that is none of a dependency.
        with_tools: [include_executables_for: [:unix], applications: [inet_rdma_tools: :load]]
      ]
    ]
  end

  def application, do: [mod: {MixCluster, []}]
end
