[
  inputs: [
    "{mix,.formatter}.exs",
    "lib/**/*.{ex,exs}",
    "test/test_helper.exs",
    "test/elixir/**/*.{ex,exs}",
    "examples/*.exs",
    "test/projects/*/{mix,.formatter}.exs",
    "test/projects/*/lib/**/*.ex"
  ],
  line_length: 120
]
