%% Reads JSON by another implementation, as OTP has no module for it before 27: python reads it, and
%% writes an Erlang term. Keys and texts are binaries.
-module(inet_rdma_test_json).

-export([needed/1, decode/1]).

%% For init_per_suite.
-spec needed(Config) -> Config | {skip, string()} when Config :: [tuple()].
needed(Config) ->
    case os:find_executable("python3") of
        false -> {skip, "no python3: it reads the JSON"};
        _ -> Config
    end.

-spec decode(iodata()) -> term().
decode(Json) ->
    Name = lists:concat(["json_", os:getpid(), "_", erlang:unique_integer([positive])]),
    File = filename:join(os:getenv("TMPDIR", "/tmp"), Name),
    ok = file:write_file(File, Json),
    Read = inet_rdma_certify_os:run(os:find_executable("python3"), ["-c", python(), File], 30000),
    ok = file:delete(File),
    {0, Term} = Read,
    {ok, Tokens, _} = erl_scan:string(binary_to_list(Term)),
    {ok, Parsed} = erl_parse:parse_term(Tokens),
    Parsed.

python() ->
    "import json, sys\n"
    "def term(value):\n"
    "    if value is None: return 'null'\n"
    "    if isinstance(value, bool): return str(value).lower()\n"
    "    if isinstance(value, int): return str(value)\n"
    "    if isinstance(value, float): return format(value, '.6f')\n"
    "    if isinstance(value, str): return '<<' + ','.join(map(str, value.encode())) + '>>'\n"
    "    if isinstance(value, list): return '[' + ','.join(map(term, value)) + ']'\n"
    "    return '#{' + ','.join(term(key) + '=>' + term(each) for key, each in value.items()) + "
    "'}'\n"
    "print(term(json.load(open(sys.argv[1], encoding='ascii'))) + '.')\n".
