// headers.cc: the program that the precompiled header of all tests belongs to; nobody runs it.
int main()
{
    return 0;
}
