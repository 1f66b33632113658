%% The connections of this node as a table for the shell, in the manner of inet:i/0.
%%
%% Internal: use inet_rdma:i/0.
-module(inet_rdma_table).

-export([format/1]).

%% Columns as wide as their widest field; why, the last one, is not padded. Nothing where there is no connection.
-spec format([inet_rdma:info()]) -> iodata().
format([]) ->
    [];
format(Infos) ->
    Rows = [header() | [row(Info) || Info <- Infos]],
    Widths = lists:foldl(fun(Row, Widest) -> lists:zipwith(fun max/2, [string:length(Field) || Field <- Row], Widest) end,
                         [0 || _ <- header()], Rows),
    [line(Row, Widths) || Row <- Rows].

line([Why], [_Width]) -> [Why, $\n];
line([Field | Fields], [Width | Widths]) -> [string:pad(Field, Width), $\s | line(Fields, Widths)].

header() ->
    ["Node", "Fabric", "State", "Recv", "Recv Packets", "Sent", "Sent Packets", "Direct", "Queued", "Losses", "Resumes",
     "Moves", "Why"].

row(#{node := Node, fabric := Fabric, why := Why} = Info) ->
    [name(Node), atom_to_list(Fabric), state(Info), number(bytes_received, Info), number(packets_received, Info),
     number(bytes_sent, Info), number(packets_sent, Info), direct(Info), number(bytes_pending, Info),
     number(losses, Info), number(resumes, Info), number(moves, Info), Why].

%% Of a link whose connection is lost, and not restored yet, no path carries what is sent.
state(#{suspended := true}) -> "suspended";
state(#{state := State}) -> atom_to_list(State).

%% A stream has no node.
name(undefined) -> "-";
name(Node) -> atom_to_list(Node).

number(Key, Info) ->
    case Info of
        #{Key := Number} -> integer_to_list(Number);
        #{} -> "-"
    end.

%% Of the bytes both ways. TCP knows no direct transfers.
direct(#{direct_bytes_sent := DirectSent, direct_bytes_received := DirectReceived, bytes_sent := Sent,
         bytes_received := Received}) ->
    io_lib:format("~b%", [(DirectSent + DirectReceived) * 100 div max(1, Sent + Received)]);
direct(#{}) ->
    "-".
