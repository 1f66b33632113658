%% Texts for people, in UTF-8.
-module(inet_rdma_text).

-export([text/2, reason/1, table/2]).

-spec text(io:format(), [term()]) -> binary().
text(Format, Arguments) -> unicode:characters_to_binary(io_lib:format(Format, Arguments)).

-spec reason(inet_rdma:reason()) -> binary().
reason(Reason) -> unicode:characters_to_binary(inet_rdma_error:format(Reason)).

%% Lines of rows that have the same number of fields. Columns are as wide as their widest field; the
%% last one is not padded.
-spec table([[unicode:chardata()]], Gap :: unicode:chardata()) -> [unicode:chardata()].
table([First | _] = Rows, Gap) ->
    Widest = fun(Row, Widths) ->
        lists:zipwith(fun max/2, [string:length(Field) || Field <- Row], Widths)
    end,
    Widths = lists:foldl(Widest, [0 || _ <- First], Rows),
    [line(Row, Widths, Gap) || Row <- Rows].

line([Last], [_Width], _Gap) ->
    [Last, $\n];
line([Field | Fields], [Width | Widths], Gap) ->
    [string:pad(Field, Width), Gap | line(Fields, Widths, Gap)].
