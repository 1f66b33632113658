%% The report of a certificate as one HTML page without other files.
-module(inet_rdma_certify_html).

-export([page/1]).

-define(BAR_PIXELS, 300).
-define(STYLE,
    "body{font:15px/1.45 system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 "
    "1em;color:#222}table{border-collapse:collapse;margin:1em 0}td,th{border:1px solid "
    "#ccc;padding:.3em "
    ".6em;text-align:left;vertical-align:top}td.n{text-align:right}.pass{color:#176b2c;font-weight:bold}.fail{color:#b00020;font-weight:bold}.skipped{color:#666}pre{white-space:pre-wrap;overflow-wrap:anywhere;font-size:12px}"
).

-spec page(inet_rdma_certify:report()) -> iodata().
page(#{
    verdict := Verdict,
    why := Why,
    started := Started,
    took_ms := TookMs,
    host := Host,
    peer := Peer,
    doctor := Doctor,
    results := Results
}) ->
    Name = maps:get(host, Host),
    unicode:characters_to_binary([
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>inet_rdma "
        "certificate: ",
        text(Name),
        "</title><style>",
        ?STYLE,
        "</style></head><body>\n<h1>inet_rdma certificate: ",
        status(Verdict),
        "</h1>\n<p>",
        text(Why),
        "</p>\n<p>",
        text(Started),
        ", ",
        seconds(TookMs),
        "</p>\n",
        "<h2>Hosts</h2>\n<table>",
        host("this host", Host),
        case Peer of
            undefined -> "";
            _ -> host("peer", Peer)
        end,
        "</table>\n",
        devices(maps:get(devices, Doctor)),
        "<h2>Speed beside inet_tcp</h2>\n",
        note(Doctor),
        figures([Result || #{figures := [_ | _]} = Result <- Results]),
        "<h2>Checks</h2>\n<table><tr><th>check</th><th>path</th><th>result</th><th>time</th><th>evidence</th></tr>\n",
        [check(Result) || Result <- Results],
        "</table>\n",
        "<p>report.json beside this page has the values of each round. `mix help "
        "inet_rdma.certify` says what each check does, docs/HARDWARE.md how to send a "
        "report.</p>\n</body></html>\n"
    ]).

host(Title, Facts) ->
    [
        "<tr><th colspan=\"2\">",
        Title,
        "</th></tr>",
        [
            [
                "<tr><td>",
                atom_to_list(Key),
                "</td><td>",
                value(maps:get(Key, Facts, undefined)),
                "</td></tr>"
            ]
         || Key <- [host, kernel, processor, cores, memory_mb, otp, erts, inet_rdma]
        ],
        $\n
    ].

value(undefined) -> "not known";
value(Number) when is_integer(Number) -> integer_to_list(Number);
value(Text) -> text(Text).

devices([]) ->
    "<p>No RDMA device.</p>\n";
devices(Devices) ->
    [
        "<h2>RDMA devices</h2>\n"
        "<table><tr><th>device</th><th>driver</th><th>transport</th><th>firmware</th><th>ports</th></tr>\n",
        [
            [
                "<tr><td>",
                text(Name),
                "</td><td>",
                value(Driver),
                case Software of
                    true -> " (software)";
                    false -> ""
                end,
                "</td><td>",
                atom_to_list(Transport),
                "</td><td>",
                value(Firmware),
                "</td><td>",
                [[text(port(Port)), "<br>"] || Port <- Ports],
                "</td></tr>\n"
            ]
         || #{
                name := Name,
                driver := Driver,
                software := Software,
                transport := Transport,
                firmware := Firmware,
                ports := Ports
            } <- Devices
        ],
        "</table>\n"
    ].

port(#{
    number := Number,
    state := State,
    link_layer := Layer,
    rate := Rate,
    active_mtu := Mtu,
    interface := Interface
}) ->
    io_lib:format(
        "~b: ~ts, ~ts, ~ts, MTU ~ts, ~ts",
        [
            Number
            | [inet_rdma_doctor_text:word(Value) || Value <- [State, Layer, Rate, Mtu, Interface]]
        ]
    ).

note(#{devices := Devices}) ->
    case [Name || #{name := Name, software := true} <- Devices] of
        [] ->
            "";
        Names ->
            [
                "<p>",
                text(lists:join(", ", Names)),
                ": software devices. Their figures say nothing of hardware.</p>\n"
            ]
    end.

figures([]) ->
    "<p>Not measured.</p>\n";
figures(Results) ->
    [
        "<p>Median of the rounds, least and greatest in parentheses. The bar is how many times as "
        "fast as inet_tcp between the same addresses, in the same rounds; its thin line goes from "
        "the least to the greatest; the dashed line is inet_tcp.</p>\n"
        "<table><tr><th>path</th><th>test</th><th>link</th><th>inet_tcp</th><th "
        "colspan=\"2\">times as fast</th></tr>\n",
        [
            row(Path, Figure, scale(Results))
         || #{path := Path, figures := Figures} <- Results, Figure <- Figures
        ],
        "</table>\n"
    ].

%% The greatest ratio of all, so that bars can be compared.
scale(Results) ->
    lists:max([
        1.0
        | [
            Ratio
         || #{figures := Figures} <- Results,
            Figure <- Figures,
            Ratio <- inet_rdma_certify_speed:ratios(Figure)
        ]
    ]).

row(Path, #{test := Test, unit := Unit, link := Link, inet_tcp := Tcp} = Figure, Scale) ->
    Ratios = inet_rdma_certify_speed:ratios(Figure),
    [
        "<tr><td>",
        text(Path),
        "</td><td>",
        text(Test),
        ", ",
        text(Unit),
        "</td><td class=\"n\">",
        spread(Link),
        "</td><td class=\"n\">",
        spread(Tcp),
        "</td><td class=\"n\">",
        spread(Ratios),
        "</td><td>",
        bar(Ratios, Scale),
        "</td></tr>\n"
    ].

spread(Values) ->
    [
        number(inet_rdma_certify_speed:median(Values)),
        " (",
        number(lists:min(Values)),
        "-",
        number(lists:max(Values)),
        ")"
    ].

number(Value) when Value >= 100 -> integer_to_list(round(Value));
number(Value) -> io_lib:format("~.2f", [float(Value)]).

%% The chart: one bar, as SVG.
bar(Ratios, Scale) ->
    X = fun(Ratio) -> integer_to_list(round(Ratio / Scale * ?BAR_PIXELS)) end,
    Median = inet_rdma_certify_speed:median(Ratios),
    Colour =
        case Median >= 1 of
            true -> "#4a90c2";
            false -> "#d08a3c"
        end,
    [
        "<svg width=\"",
        integer_to_list(?BAR_PIXELS + 4),
        "\" height=\"18\" role=\"img\" aria-label=\"",
        number(Median),
        "\"><rect x=\"0\" y=\"3\" height=\"12\" width=\"",
        X(Median),
        "\" fill=\"",
        Colour,
        "\"/><line x1=\"",
        X(lists:min(Ratios)),
        "\" x2=\"",
        X(lists:max(Ratios)),
        "\" y1=\"9\" y2=\"9\" stroke=\"#222\"/><line x1=\"",
        X(1),
        "\" x2=\"",
        X(1),
        "\" y1=\"0\" y2=\"18\" stroke=\"#222\" stroke-dasharray=\"2,2\"/></svg>"
    ].

check(#{
    check := Check,
    path := Path,
    status := Status,
    why := Why,
    fix := Fix,
    evidence := Evidence,
    took_ms := TookMs
}) ->
    [
        "<tr><td>",
        atom_to_list(Check),
        "</td><td>",
        text(Path),
        "</td><td>",
        status(Status),
        "</td><td class=\"n\">",
        seconds(TookMs),
        "</td><td>",
        [["<p>", text(Why), "</p>"] || Why =/= undefined],
        [["<p>Fix: ", text(Fix), "</p>"] || Fix =/= undefined],
        [
            [
                "<details><summary>",
                integer_to_list(length(Evidence)),
                " lines</summary><pre>",
                text(lists:join("\n", Evidence)),
                "</pre></details>"
            ]
         || Evidence =/= []
        ],
        "</td></tr>\n"
    ].

status(Status) ->
    [
        "<span class=\"",
        atom_to_list(Status),
        "\">",
        string:uppercase(atom_to_list(Status)),
        "</span>"
    ].

seconds(Ms) -> io_lib:format("~.1f s", [Ms / 1000]).

text(Chars) ->
    lists:map(
        fun
            ($&) -> "&amp;";
            ($<) -> "&lt;";
            ($>) -> "&gt;";
            ($") -> "&quot;";
            (Char) -> Char
        end,
        unicode:characters_to_list(Chars)
    ).
