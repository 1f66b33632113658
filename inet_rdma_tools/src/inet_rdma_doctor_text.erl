%% The report of inet_rdma_doctor for people and for programs.
-module(inet_rdma_doctor_text).

-export([table/1, json/1, word/1]).

-define(WIDTH, 120).
%% Column at which the text of a finding begins, after severity and subject.
-define(INDENT, 25).

%% UTF-8. Devices, then findings with problems first, then the verdict.
-spec table(inet_rdma_doctor:report()) -> iodata().
table(#{machine := Machine, devices := Devices, findings := Findings} = Report) ->
    unicode:characters_to_binary([
        machine(Machine),
        $\n,
        "links within this host: over ",
        atom_to_list(maps:get(this_host, Report)),
        $\n,
        "links to other hosts:   over ",
        atom_to_list(maps:get(other_hosts, Report)),
        $\n,
        [[$\n, device(Device)] || Device <- Devices],
        $\n,
        [
            finding(Finding)
         || Severity <- [problem, note, ok],
            #{severity := Is} = Finding <- Findings,
            Is =:= Severity
        ],
        $\n,
        verdict(Report),
        $\n
    ]).

machine(#{kernel := Kernel, otp := Otp, schedulers := Schedulers, cores := Cores}) ->
    io_lib:format("Linux ~ts, OTP ~ts, schedulers: ~b, cores: ~ts~n", [
        word(Kernel), Otp, Schedulers, word(Cores)
    ]).

verdict(#{starts := false}) ->
    "A node with these options does not start.";
verdict(#{leaves_tcp := false}) ->
    "No link of this node can leave TCP.";
verdict(#{other_hosts := Fabric}) when Fabric =:= tcp; Fabric =:= tls ->
    "Links of this node can leave TCP within this host.";
verdict(#{}) ->
    "Links of this node can leave TCP, within this host and to others.".

device(#{name := Name, ports := Ports} = Device) ->
    Firmware =
        case Device of
            #{firmware := undefined} -> "";
            #{firmware := Version} -> [", firmware ", Version]
        end,
    [
        Name,
        ": ",
        driver(Device),
        ", ",
        transport(Device),
        Firmware,
        $\n,
        [port(Port) || Port <- Ports]
    ].

driver(#{driver := undefined, software := true}) -> "software";
driver(#{driver := undefined}) -> "driver unknown";
driver(#{driver := Driver, software := true}) -> ["software (", Driver, ")"];
driver(#{driver := Driver}) -> Driver.

transport(#{transport := iwarp}) -> "iWARP";
transport(#{transport := infiniband, ports := [#{link_layer := <<"Ethernet">>} | _]}) -> "RoCE";
transport(#{transport := infiniband}) -> "InfiniBand".

port(#{number := Number, gids := Gids} = Port) ->
    Words = [word(maps:get(Key, Port)) || Key <- [state, link_layer, rate]],
    [
        io_lib:format("  port ~b: ~ts~ts~ts~n", [
            Number, lists:join(", ", Words), mtu(Port), interface(Port)
        ]),
        [
            io_lib:format("    GID ~-3b ~-12ts ~ts~n", [Index, Type, Address])
         || #{index := Index, type := Type, address := Address} <- Gids
        ]
    ].

mtu(#{active_mtu := undefined}) -> "";
mtu(#{active_mtu := Active, max_mtu := Max}) -> io_lib:format(", MTU ~b of ~b", [Active, Max]).

interface(#{interface := undefined}) ->
    "";
interface(#{interface := Interface, addresses := []}) ->
    [", ", Interface, " without an address"];
interface(#{interface := Interface, addresses := Addresses}) ->
    [", ", Interface, " ", lists:join(" ", Addresses)].

finding(#{severity := Severity, about := About, text := Text, fix := Fix}) ->
    [
        io_lib:format("~-8s ~-15s ", [Severity, About]),
        wrapped(Text),
        case Fix of
            undefined -> "";
            _ -> [indent(), wrapped(["fix: ", Fix])]
        end
    ].

%% Lines that a terminal of 120 columns shows whole, the first one indented already.
wrapped(Text) ->
    [First | Words] = string:lexemes(unicode:characters_to_list(Text), " "),
    {Lines, _} = lists:mapfoldl(fun append/2, length(First), Words),
    [First, Lines, $\n].

append(Word, Column) when Column + 1 + length(Word) > ?WIDTH - ?INDENT ->
    {[$\n, indent(), Word], length(Word)};
append(Word, Column) ->
    {[$\s, Word], Column + 1 + length(Word)}.

indent() -> lists:duplicate(?INDENT, $\s).

%% A fact of a device; "?" if the system does not tell it.
-spec word(undefined | integer() | Text) -> string() | Text when Text :: unicode:chardata().
word(undefined) -> "?";
word(Number) when is_integer(Number) -> integer_to_list(Number);
word(Text) -> Text.

%% Only what a report consists of: maps with atoms as keys, lists, binaries, atoms, numbers, and
%% pairs of an atom and a text ({refused, Why}), which become objects. OTP has no module for JSON
%% before 27.
-spec json(term()) -> iodata().
json(undefined) ->
    "null";
json(true) ->
    "true";
json(false) ->
    "false";
json(Atom) when is_atom(Atom) -> json(atom_to_binary(Atom));
json(Number) when is_integer(Number) -> integer_to_list(Number);
json(Number) when is_float(Number) -> float_to_list(Number, [{decimals, 3}, compact]);
json(Text) when is_binary(Text) ->
    [$", [escape(Char) || Char <- unicode:characters_to_list(Text)], $"];
json(List) when is_list(List) -> [$[, lists:join($,, [json(Value) || Value <- List]), $]];
json({Key, Value}) when is_atom(Key) -> json(#{Key => Value});
json(Map) when is_map(Map) ->
    [
        ${,
        lists:join($,, [
            [json(Key), $:, json(Value)]
         || {Key, Value} <- lists:sort(maps:to_list(Map))
        ]),
        $}
    ].

escape($") ->
    "\\\"";
escape($\\) ->
    "\\\\";
escape(Char) when Char >= 16#10000 ->
    <<High:16, Low:16>> = unicode:characters_to_binary([Char], unicode, {utf16, big}),
    [hex(High), hex(Low)];
escape(Char) when Char < $\s; Char > $~ -> hex(Char);
escape(Char) ->
    Char.

hex(Number) -> io_lib:format("\\u~4.16.0b", [Number]).
