Code.require_file("lib/mix/tasks/compile.inet_rdma_app.exs", __DIR__)
Code.require_file("lib/mix/tasks/compile.inet_rdma_native.exs", __DIR__)
Code.require_file("lib/mix/tasks/compile.inet_rdma_tools.exs", __DIR__)

defmodule InetRdma.MixProject do
  use Mix.Project

  # src/inet_rdma.app.src describes the application. rebar3 and the task compile.inet_rdma_app each write the .app
  # file from it; the project takes from it what Mix needs before it compiles.
  @external_resource app_src = Path.join(__DIR__, "src/inet_rdma.app.src")
  {:ok, [{:application, :inet_rdma, app}]} = :file.consult(app_src)
  @app app

  def project do
    [
      app: :inet_rdma,
      version: List.to_string(@app[:vsn]),
      description: List.to_string(@app[:description]),
      elixir: "~> 1.14",
      compilers: (Mix.compilers() -- [:app]) ++ [:inet_rdma_app, :inet_rdma_tools, :inet_rdma_native],
      elixirc_paths: elixirc_paths(Mix.env()),
      # Modules of the application inet_rdma_tools, which the Mix tasks load before they call it.
      elixirc_options: [no_warn_undefined: [:inet_rdma_certify, :inet_rdma_doctor, :inet_rdma_flight]],
      erlc_options: erlc_options(Mix.env()),
      deps: [],
      package: package(),
      docs: docs()
    ]
  end

  # Mix keeps these on the code path while it compiles. They do not go into the .app file from here.
  def application, do: [extra_applications: @app[:applications] -- [:kernel, :stdlib]]

  # The Hex package has what a build needs, and the guides. test/elixir/package_test.exs builds from these files alone.
  # The benches are there because the manifests name them, and Cargo refuses a manifest whose target is missing.
  defp package do
    [
      licenses: Enum.map(@app[:licenses], &List.to_string/1),
      links: Map.new(@app[:links], fn {name, address} -> {List.to_string(name), List.to_string(address)} end),
      files:
        ~w(mix.exs rebar.config README.md CHANGELOG.md CONTRIBUTING.md LICENSE docs lib src inet_rdma_tools scripts) ++
          ~w(priv/.gitkeep native/Cargo.toml native/Cargo.lock native/nif) ++
          ~w(native/{core,link,socket,tools}/*/{src,benches,examples,Cargo.toml,README.md,build.rs})
    ]
  end

  # Settings of ExDoc, which publishes the guides beside the modules. ExDoc is no dependency of the build: `make docs`
  # gives them to the program ex_doc.
  defp docs do
    [
      main: "readme",
      # Of README's chart.
      assets: %{"bench/results/set" => "bench/results/set"},
      extras:
        ["README.md"] ++
          Enum.map(guides(), &extra/1) ++
          internals() ++ tables() ++ ["CHANGELOG.md", "CONTRIBUTING.md", "LICENSE"],
      groups_for_extras: [Guides: guides(), Internals: internals(), Measurements: Enum.map(tables(), &elem(&1, 0))],
      groups_for_modules: [
        "Elixir": [InetRdma, InetRdma.Info, InetRdma.Listener, InetRdma.Socket, InetRdma.Stream, InetRdma.StreamError],
        Erlang: [:inet_rdma, :inet_rdma_doctor, :inet_rdma_error, :inet_rdma_flight, :inet_rdma_prometheus_collector]
      ],
      # The other Erlang modules are internal.
      filter_modules:
        "^(Elixir\\..*|inet_rdma|inet_rdma_doctor|inet_rdma_error|inet_rdma_flight|inet_rdma_prometheus_collector)$"
    ]
  end

  defp guides do
    ~w(docs/QUICKSTARTS.md docs/DEPLOY.md docs/OPTIONS.md docs/TUNING.md docs/FAULTS.md) ++
      ~w(docs/TROUBLESHOOTING.md docs/MONITORING.md docs/FLIGHT.md docs/HARDWARE.md docs/SECURITY.md) ++
      ~w(docs/STREAMS.md native/tools/cat/README.md)
  end

  defp extra("native/tools/cat/README.md" = page), do: {page, filename: "rdma-cat", title: "rdma-cat"}
  defp extra(page), do: page

  # The published tables, which the guides link to. The Hex package has none.
  defp tables do
    for table <- Path.wildcard("bench/results/**/table.txt") do
      name = table |> Path.dirname() |> Path.relative_to("bench/results") |> String.replace("/", "-")
      {table, filename: "results-" <> name, title: "bench/results: " <> name}
    end
  end

  defp internals, do: ~w(docs/ARCHITECTURE.md docs/FABRICS.md docs/DECISIONS.md docs/PROTOCOL.md)

  defp elixirc_paths(:test), do: ["lib", "test/elixir/support"]
  defp elixirc_paths(_env), do: ["lib"]

  # Dependencies are compiled in :prod. There a warning that a later OTP adds must not stop the build.
  defp erlc_options(:prod), do: [:debug_info]
  defp erlc_options(_env), do: [:debug_info, :warnings_as_errors]
end
