defmodule InetRdma.FetchTest do
  # scripts/fetch, by each program that it takes.
  use ExUnit.Case, async: true

  alias InetRdma.Test.{Archive, Os}

  # Servers of HTTP and of HTTPS, whose certificate the programs trust by the environment.
  setup do
    dir = Os.scratch_dir()
    File.write!(Path.join(dir, "file"), "content")
    [key, certificate, pem] = for name <- ~w(key certificate pem), do: Path.join(dir, name)

    Os.run!(
      "openssl",
      ~w(req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1) ++
        ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate]
    )

    File.write!(pem, [File.read!(key), File.read!(certificate)])
    File.write!(Path.join(dir, "wgetrc"), "ca_certificate = #{certificate}\n")
    {_server, http} = Archive.serve!(dir)
    {_server, https} = Archive.serve!(dir, pem)
    trust = [{"CURL_CA_BUNDLE", certificate}, {"WGETRC", Path.join(dir, "wgetrc")}]
    %{dir: dir, http: http, https: https, trust: trust}
  end

  for program <- ~w(curl wget) do
    # The chroots of scripts/matrix have neither.
    skip = if System.find_executable(program), do: false, else: "there is no #{program} on this machine"

    @tag skip: skip
    test "#{program} follows redirects to https alone", %{http: http, https: https, trust: trust} = context do
      fetch = fetcher(unquote(program), context)
      assert fetch.("#{http}/files/file", []) == {"", 0, "content"}
      assert fetch.("#{https}/files/file", trust) == {"", 0, "content"}
      assert fetch.("#{http}/moved/file?#{https}/files/file", trust) == {"", 0, "content"}
      assert fetch.("#{https}/moved/file?/files/file", trust) == {"", 0, "content"}
      assert fetch.("#{https}/moved/file?#{https}/moved/file?#{https}/files/file", trust) == {"", 0, "content"}

      for from <- ["#{https}/moved/file?", "#{http}/moved/file?", "#{https}/moved/file?#{https}/moved/file?"] do
        assert {said, 1, nil} = fetch.("#{from}#{http}/files/file", trust)

        assert said =~
                 ~r/a redirect to .* is not followed: it is not https|Protocol "?http"? (not supported or )?disabled/
      end
    end

    @tag skip: skip
    test "#{program} refuses a certificate that nobody vouches for", %{https: https} = context do
      assert {said, 1, nil} = fetcher(unquote(program), context).("#{https}/files/file", [])
      assert said =~ ~r/certificate/
    end
  end

  test "busybox's wget is not taken for https", %{http: http, https: https} = context do
    if busybox = System.find_executable("busybox") do
      fetch = fetcher("wget", context, busybox)
      assert fetch.("#{http}/files/file", []) == {"", 0, "content"}

      assert fetch.("#{https}/files/file", []) ==
               {"busybox's wget verifies no certificate: install curl, or GNU wget\n", 1, nil}
    else
      IO.puts("skipped: there is no busybox on this machine")
    end
  end

  # Runs scripts/fetch with this program alone: what it says, its status, and the content of the file.
  defp fetcher(program, %{dir: dir}, path \\ nil) do
    bin = Path.join(dir, "bin")
    File.mkdir_p!(bin)
    for name <- ~w(cat rm sed sh sleep tail tr wc), do: File.ln_s!(System.find_executable(name), Path.join(bin, name))
    File.ln_s!(path || System.find_executable(program), Path.join(bin, program))
    file = Path.join(dir, "fetched")
    no_proxy = for name <- ~w(http_proxy https_proxy all_proxy HTTPS_PROXY ALL_PROXY), do: {name, nil}

    fn url, env ->
      File.rm(file)
      env = [{"PATH", bin} | no_proxy] ++ env
      {said, status} = System.cmd(Path.join(Os.root(), "scripts/fetch"), [url, file], env: env, stderr_to_stdout: true)
      content = with {:ok, content} when content != "" <- File.read(file), do: content, else: (_none -> nil)
      {said, status, content}
    end
  end
end
