/* A node in C, by OTP's libei.
 *
 *     cnode connect NAME COOKIE NODE    connects, sends {Pid, <<"hello">>} to the process `cnode_server' there, prints the atom
 *                                       that comes back
 *     cnode accept NAME COOKIE          registers with EPMD, prints "listens", accepts one link, and answers {Pid, Term} by
 *                                       Term until the link ends
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ei.h>

#define TIMEOUT_MS 60000

static int fail(const char *what)
{
    fprintf(stderr, "cnode: %s: erl_errno %d\n", what, erl_errno);
    return 1;
}

/* The next message that is no tick; ERL_ERROR when the link has ended. */
static int receive(int fd, erlang_msg *message, ei_x_buff *buffer)
{
    int got;

    do {
        buffer->index = 0;
        got = ei_xreceive_msg_tmo(fd, message, buffer, TIMEOUT_MS);
    } while (got == ERL_TICK);
    return got;
}

static int connect_to(ei_cnode *self, char *node)
{
    erlang_msg message;
    ei_x_buff out, in;
    char answer[MAXATOMLEN_UTF8];
    int version, fd = ei_connect(self, node);

    if (fd < 0)
        return fail("connect");
    ei_x_new_with_version(&out);
    ei_x_encode_tuple_header(&out, 2);
    ei_x_encode_pid(&out, ei_self(self));
    ei_x_encode_binary(&out, "hello", 5);
    if (ei_reg_send(self, fd, "cnode_server", out.buff, out.index) < 0)
        return fail("send");
    ei_x_new(&in);
    if (receive(fd, &message, &in) != ERL_MSG)
        return fail("receive");
    in.index = 0;
    if (ei_decode_version(in.buff, &in.index, &version) < 0 || ei_decode_atom(in.buff, &in.index, answer) < 0)
        return fail("decode");
    printf("%s\n", answer);
    return 0;
}

static int accept_one(ei_cnode *self)
{
    ErlConnect peer;
    erlang_msg message;
    erlang_pid from;
    ei_x_buff in, out;
    int port = 0, listener, fd, version, arity, length;

    listener = ei_listen(self, &port, 5);
    if (listener < 0)
        return fail("listen");
    if (ei_publish(self, port) < 0)
        return fail("publish");
    printf("listens\n");
    fflush(stdout);
    fd = ei_accept(self, listener, &peer);
    if (fd < 0)
        return fail("accept");
    printf("accepted %s\n", peer.nodename);
    fflush(stdout);
    ei_x_new(&in);
    while (receive(fd, &message, &in) == ERL_MSG) {
        if (message.msgtype != ERL_SEND && message.msgtype != ERL_REG_SEND)
            continue;
        length = in.index;
        in.index = 0;
        if (ei_decode_version(in.buff, &in.index, &version) < 0 ||
            ei_decode_tuple_header(in.buff, &in.index, &arity) < 0 || arity != 2 ||
            ei_decode_pid(in.buff, &in.index, &from) < 0)
            continue; /* net_kernel's own, such as that of a ping */
        ei_x_new_with_version(&out);
        ei_x_append_buf(&out, in.buff + in.index, length - in.index);
        if (ei_send(fd, &from, out.buff, out.index) < 0)
            return fail("answer");
        ei_x_free(&out);
    }
    printf("ended\n");
    return 0;
}

int main(int count, char **arguments)
{
    ei_cnode self;

    if (count < 4 || ei_init() != 0)
        return fail("arguments");
    if (ei_connect_init(&self, arguments[2], arguments[3], 1) < 0)
        return fail("init");
    if (strcmp(arguments[1], "connect") == 0 && count == 5)
        return connect_to(&self, arguments[4]);
    return accept_one(&self);
}
