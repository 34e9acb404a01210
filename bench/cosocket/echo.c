/* An echo server on a unix socket: one thread, epoll, one recv and one send a readiness. echo PATH */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s PATH\n", argv[0]);
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, argv[1], sizeof(address.sun_path) - 1);
    unlink(argv[1]);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof(address)) || listen(listener, 511)) {
        perror("listen");
        return 1;
    }
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, events[64];
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    static char buffer[65536];
    for (;;) {
        int count = epoll_wait(epoll, events, 64, -1);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) {
                int peer = accept4(listener, NULL, NULL, 0);
                if (peer < 0)
                    continue;
                event.data.fd = peer;
                epoll_ctl(epoll, EPOLL_CTL_ADD, peer, &event);
                continue;
            }
            ssize_t got = recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT);
            if (got < 0 && (errno == EAGAIN || errno == EINTR))
                continue;
            /* the sockets block on sending: peers of this server read what they asked for */
            if (got <= 0 || send(fd, buffer, got, 0) != got)
                close(fd);
        }
    }
}
